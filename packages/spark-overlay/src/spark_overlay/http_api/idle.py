"""Refuses to go on unless an engine says that it is idle.  Standard library only; asks once, waits for nothing."""

from dataclasses import replace

from spark_overlay.http_api.address import AddressError, parse_address
from spark_overlay.http_api.api import METRICS, SHORT_TIMEOUT_S
from spark_overlay.http_api.errors import EngineApiError
from spark_overlay.http_api.gauges import GaugesError, Load, read_load
from spark_overlay.http_api.transport import Call, fetch

DEFAULT_METRICS_URL = "http://127.0.0.1:8000/metrics"
WAYS_OUT = (
    "give the address of the engine's metrics by --metrics, or --no-metrics-check where no engine is running"
)


class NotIdle(Exception):
    """The engine has requests, or cannot be asked; the text is one sentence."""


def check_metrics_url(text: str) -> str:
    """The address of an engine's metrics, with the `/metrics` that may be left out.  Raises AddressError."""
    address = parse_address(text)
    return str(address if address.path else replace(address, path=METRICS))


def require_idle(metrics_url: str, timeout_s: float = SHORT_TIMEOUT_S) -> Load:
    """The load of an engine without any.  metrics_url: as `check_metrics_url` gives it.  Raises NotIdle."""
    try:
        text = fetch(parse_address(metrics_url), Call("", timeout_s)).decode("utf-8", "replace")
        load = read_load(text)
    except AddressError as error:
        raise NotIdle(f"the engine's metrics: {error}") from None
    except (EngineApiError, GaugesError) as error:
        where = "" if isinstance(error, EngineApiError) else f"{metrics_url}: "
        raise NotIdle(f"whether the engine is idle cannot be told ({where}{error}): {WAYS_OUT}") from None
    if not load.idle:
        raise NotIdle(
            f"the engine has requests, {load} by {metrics_url}: try again once it is idle, for they and the "
            "probe would slow each other down"
        )
    return load
