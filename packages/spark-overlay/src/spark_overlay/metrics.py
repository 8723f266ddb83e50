"""The stats file as Prometheus metrics: a collector that reads it at every scrape.  Keeps no state of its own.

Names follow the file: `spark_overlay_` and the field, `_total` on what only grows, seconds where the file has milli- or
microseconds.  What this version does not know is exported too, under the name that the file gives it: a figure is
never dropped for being new.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_overlay.figures import LATENCIES
from spark_overlay.link import LinkCounters
from spark_overlay.metrics_families import PREFIX, Families
from spark_overlay.round.counters import Counters
from spark_overlay.stats_file import (
    StatsFileError,
    mappings,
    number,
    numbers,
    read_stats,
    section,
    written_at,
)

LABELS = ("endpoint", "policy")
GROUPS = {  # counters' prefix -> (family, label)
    "fallback_": ("fallbacks", "reason"),
    "req_status_": ("req_status", "status"),
}
COUNTER_MEANINGS = Counters.meanings() | LinkCounters.meanings()
GAUGES = {  # field -> (name, meaning, factor to base units)
    "connected": ("connected", "1 where there is a session with the worker", 1.0),
    "epoch": ("epoch", "number of the last session that rounds used", 1.0),
    "timeout_ms": ("timeout_seconds", "deadline of a round", 1e-3),
    "budget_rows": ("budget_rows", "context rows that a round may send, at most", 1.0),
    "acceptance_alarm": ("acceptance_alarm", "1 from the alarm until a draft is accepted again", 1.0),
    "breaker.consecutive_failures": ("breaker_consecutive_failures", "failed attempts in a row", 1.0),
    "breaker.cooldown_left": (
        "breaker_cooldown_left_rounds",
        "rounds that the open breaker still skips",
        1.0,
    ),
    "breaker.trip": ("breaker_trip_failures", "setting: failures that open the breaker, 0 for never", 1.0),
    "breaker.cooldown": ("breaker_cooldown_rounds", "setting: rounds that an open breaker skips", 1.0),
    "worker.confidence": ("worker_confidence", "1 where the worker's confidences are real", 1.0),
    "worker.fake_drafts": ("worker_fake_drafts", "1 where the worker drafts nothing real (a mock)", 1.0),
    "worker.window": ("worker_window", "context rows that the worker's drafter attends to, 0 for all", 1.0),
    "worker.block_length": ("worker_block_length", "draft positions of the worker", 1.0),
    "worker.max_slots": ("worker_max_slots", "request slots of the worker's session", 1.0),
    "transport.version": ("transport_version", "contract version that both ends agreed on", 1.0),
    "transport.authenticated": (
        "transport_authenticated",
        "1 where both ends proved that they hold the key",
        1.0,
    ),
    "transport.max_frame_bytes": ("transport_max_frame_bytes", "largest message of the session", 1.0),
    "transport.peer_max_frame_bytes": (
        "transport_peer_max_frame_bytes",
        "largest message that the connection allows",
        1.0,
    ),
    "acceptance.accepted_per_round": (
        "acceptance_accepted_per_round",
        "draft tokens accepted per verified request, since the engine's start",
        1.0,
    ),
    "shadow.eligible_share": ("shadow_eligible_share", "share of requests that could be compared", 1.0),
    "shadow.full_block_agree_rate": (
        "shadow_full_block_agree_rate",
        "share of comparisons without a mismatch, since the engine's start",
        1.0,
    ),
    "rank0_buffers.ring_bytes": ("ring_bytes", "memory of the ring of context rows", 1.0),
    "rank0_buffers.ring_rows": ("ring_rows", "context rows kept per slot", 1.0),
}
INFO = {  # label -> field
    "engine_id": "engine_id",
    "shadow_use": "shadow_use",
    "on_fail": "on_fail",
    "worker": "worker.name",
    "worker_boot_nonce": "worker.boot_nonce",
    "identity": "worker.identity",
    "scheme": "transport.scheme",
    "wire": "transport.wire",
    "contract_version": "transport.version",
    "library": "transport.library",
    "n_out_reason": "n_out_reason",
}
QUANTILE = re.compile(r"p[0-9]+")
BREAKER_STATES = ("closed", "open", "half_open")
ACCEPTANCE = {
    "verified": "requests whose drafts were verified",
    "accepted": "draft tokens accepted",
    "drafted": "draft tokens verified",
}
SHADOW = {
    "eligible": "comparisons: whole window, all positions asked for, both drafters succeeded",
    "mismatches": "comparisons in which the two drafters differed somewhere",
    "near_ties": "mismatches where the worker's two best tokens were almost equal (a margin of 1e-3 at most)",
}
SHADOW_BY_POSITION = {
    "compared": "drafts compared: all positions before this one agreed",
    "agreed": "of those compared, the ones that agreed",
}
CONTROL_COUNTERS = {
    "pauses": "times that operators paused remote drafting",
    "rearms": "times that operators rearmed it",
    "problems": "times that the control file became one that the engine does not obey",
}
CONTROL_GAUGES = {
    "rearm": "number of the last rearm in the control file",
    "depth_max": "draft positions that operators let be asked for, at most; absent without a cap",
    "written_at": "when the control file in effect was written, Unix time in seconds",
    "since_s": "since when operators' state (active or paused) holds, Unix time in seconds",
}
FIRST_POSITION = "0 is the first draft, as in vLLM's own metrics"
COUNTED = {
    *(
        "control",
        "counters",
        "latency",
        "shadow.ineligible",
        "breaker.trips",
    ),  # the last: counters.breaker_trips says it
    *(f"acceptance.{name}" for name in ACCEPTANCE),
    *(f"shadow.{name}" for name in SHADOW),
}
"""Fields that are counters and told as such, not as gauges."""


class StatsCollector(Collector):
    """Reads path anew whenever it is collected; a file that cannot be used is a metric, not an error.

    on_reading: told after each reading why the file could not be used, "" where it could.
    clock_s: Unix time in seconds, of the same clock as the file's times.
    """

    def __init__(
        self, path: Path, on_reading: Callable[[str], None], clock_s: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._on_reading = on_reading
        self._clock_s = clock_s

    def collect(self) -> Iterator[Metric]:
        """The families of this moment."""
        problem, families, written_s = "", list[Metric](), written_at(self._path)
        try:
            read = read_stats(self._path)
            written_s = read.written_s
            families = stats_families(read.stats)
        except StatsFileError as error:
            problem = f"{self._path}: {error}"
        self._on_reading(problem)
        yield GaugeMetricFamily(
            PREFIX + "stats_readable",
            "1 where the stats file is there and makes sense; without it, nothing else is known",
            float(bool(families)),
        )
        if written_s is not None:
            yield GaugeMetricFamily(
                PREFIX + "stats_age_seconds",
                "since the stats file was last written",
                max(0.0, self._clock_s() - written_s),
            )
        yield from families


def stats_families(stats: Mapping[str, Any]) -> list[Metric]:
    """Everything in the file that is a number.  Raises StatsFileError naming a field that is not what it should be."""
    families = Families({name: _text(stats, name) for name in LABELS})
    info = {label: _text(stats, path) for label, path in INFO.items()}
    families.add("gauge", "info", "what this engine is and whom it drafts with; always 1", 1.0, info)
    disabled = float(bool(stats.get("disabled")))
    families.add("gauge", "disabled", "1 where the remote is disabled for this engine run", disabled)
    _add_gauges(families, stats)
    _add_breaker_state(families, section(stats, "breaker"))
    _add_control(families, section(stats, "control"))
    _add_counters(families, section(stats, "counters"))
    for name in section(stats, "latency"):
        _add_latency(families, name, section(section(stats, "latency"), name))
    _add_acceptance(families, section(stats, "acceptance"))
    _add_shadow(families, section(stats, "shadow"))
    for requests, positions in enumerate(numbers(stats, "n_out_by_reqs")):
        if requests:
            labels = {"requests": str(requests)}
            families.add(
                "gauge", "n_out", "draft positions asked for, by running requests", positions, labels
            )
    return families.all()


def _text(stats: Mapping[str, Any], path: str) -> str:
    """The text at a path, for a label; empty where there is none."""
    *sections, last = path.split(".")
    for name in sections:
        stats = section(stats, name)
    value = stats.get(last)
    return "" if value is None else str(value)


def _scalars(stats: Mapping[str, Any], path: str = "", levels: int = 3) -> Iterator[tuple[str, float]]:
    """Every number and truth value with its path, down to so many levels."""
    for name, value in stats.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict) and levels > 1 and here not in COUNTED:
            yield from _scalars(value, here, levels - 1)
        elif isinstance(value, int | float) and here not in COUNTED:
            yield here, number(int(value) if isinstance(value, bool) else value, here)


def _add_gauges(families: Families, stats: Mapping[str, Any]) -> None:
    for path, value in _scalars(stats):
        unknown = (path.replace(".", "_"), f"{path} of the stats file", 1.0)
        name, meaning, factor = GAUGES.get(path, unknown)
        families.add("gauge", name, meaning, value * factor)


def _add_breaker_state(families: Families, breaker: Mapping[str, Any]) -> None:
    if "state" not in breaker:
        return
    state = str(breaker["state"])
    for known in dict.fromkeys((*BREAKER_STATES, state)):
        meaning = "1 for the state that the circuit breaker is in, 0 for the others"
        families.add("gauge", "breaker_state", meaning, float(known == state), {"state": known})


def _add_control(families: Families, control: Mapping[str, Any]) -> None:
    """Of an engine without a control file too: it is not paused, and has no problem with one."""
    states = {
        "paused": ("1 while operators have paused remote drafting", control.get("state") == "paused"),
        "pending": ("1 while the engine connects because of an order", bool(control.get("pending"))),
        "problem": ("1 while the engine does not obey its control file", bool(control.get("problem"))),
    }
    for name, (meaning, holds) in states.items():
        families.add("gauge", f"control_{name}", meaning, float(holds))
    for name, meaning in CONTROL_GAUGES.items():
        if control.get(name) is not None:
            families.add("gauge", f"control_{name}", meaning, number(control[name], f"control.{name}"))
    for name, meaning in CONTROL_COUNTERS.items():
        count = number(control.get(name, 0), f"control.{name}")
        families.add("counter", f"control_{name}", meaning, count)


def _add_counters(families: Families, counters: Mapping[str, Any]) -> None:
    for name, count in counters.items():
        for prefix, (family, label) in GROUPS.items():
            if name.startswith(prefix):
                labels = {label: name.removeprefix(prefix)}
                families.add("counter", family, _group_meaning(prefix, label), number(count, name), labels)
                break
        else:
            meaning = COUNTER_MEANINGS.get(name, f"counter {name} of the stats file")
            families.add("counter", name, meaning, number(count, name))


def _group_meaning(prefix: str, label: str) -> str:
    """The meanings of all counters of a group, in one text."""
    found = [(name, text) for name, text in COUNTER_MEANINGS.items() if name.startswith(prefix)]
    (subject, _, _), *_ = (text.partition(": ") for _, text in found)
    told = "; ".join(
        f"{name.removeprefix(prefix)}: {text.removeprefix(f'{subject}: ')}" for name, text in found
    )
    return f"{subject} by {label}. {told}"


def _add_latency(families: Families, name: str, values: Mapping[str, Any]) -> None:
    """Quantiles and maximum are those since the engine's start; of no values there are none."""
    base = name.removesuffix("_us") + "_seconds"
    meaning = LATENCIES.get(name, f"latency {name} of the stats file") + ", since the engine's start"
    count = number(values.get("count"), f"{name}.count")
    for key, value in values.items():
        seconds = number(value, f"{name}.{key}") / 1e6
        if key == "count":
            families.add("summary", base, meaning, count, suffix="_count")
        elif key == "sum":
            families.add("summary", base, meaning, seconds, suffix="_sum")
        elif QUANTILE.fullmatch(key):
            if count:
                families.add("summary", base, meaning, seconds, {"quantile": str(float(f"0.{key[1:]}"))})
        else:
            families.add(
                "gauge", f"{name.removesuffix('_us')}_{key}_seconds", f"{key} of: {meaning}", seconds
            )


def _add_acceptance(families: Families, acceptance: Mapping[str, Any]) -> None:
    for name, meaning in ACCEPTANCE.items():
        if name in acceptance:
            families.add("counter", f"acceptance_{name}", meaning, number(acceptance[name], name))
        _add_positions(families, f"acceptance_{name}", meaning, numbers(acceptance, f"{name}_by_position"))
    for bucket in mappings(acceptance, "by_context"):
        labels = {name: str(bucket.get(name)) for name in ("from", "below")}
        for name, meaning in ACCEPTANCE.items():
            told = f"{meaning}, by the anchor's position: from (included) and below (not)"
            count = number(bucket.get(name), f"by_context.{name}")
            families.add("counter", f"acceptance_{name}_by_context", told, count, labels)


def _add_positions(families: Families, name: str, meaning: str, counts: Sequence[float]) -> None:
    for position, count in enumerate(counts):
        told, labels = f"{meaning}, by draft position; {FIRST_POSITION}", {"position": str(position)}
        families.add("counter", f"{name}_by_position", told, count, labels)


def _add_shadow(families: Families, shadow: Mapping[str, Any]) -> None:
    for name, meaning in SHADOW.items():
        if name in shadow:
            families.add("counter", f"shadow_{name}", meaning, number(shadow[name], name))
    for reason, count in section(shadow, "ineligible").items():
        meaning = "requests that were not compared, by reason"
        families.add("counter", "shadow_ineligible", meaning, number(count, reason), {"reason": reason})
    for name, meaning in SHADOW_BY_POSITION.items():
        _add_positions(families, f"shadow_{name}", meaning, numbers(shadow, f"{name}_by_position"))
    blocks = numbers(shadow, "first_mismatch_hist")
    for position, count in enumerate(blocks):
        labels = {"position": str(position) if position < len(blocks) - 1 else "none"}
        meaning = f"comparisons by the first position that differed, none: not one did; {FIRST_POSITION}"
        families.add("counter", "shadow_first_mismatch", meaning, count, labels)
