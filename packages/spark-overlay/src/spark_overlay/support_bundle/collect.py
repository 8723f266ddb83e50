"""Collects what goes into the bundle: names and bytes, all of them by the lists of what may leave the host.

Reads only.  What cannot be read is told in the manifest; a log that was named must be readable.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ofl import rdma_devices
from ofl.contract.dspark_v1 import Status
from ofl.doctor import report
from ofl.doctor.findings import Facts, Finding
from ofl.doctor.host import Host
from ofl.files import read_plain
from pydantic import ValidationError

from spark_overlay.doctor.asks import EngineAsks
from spark_overlay.doctor.checks import MODULE_LOADINGS
from spark_overlay.doctor.command import COMMAND, examine_engine
from spark_overlay.doctor.gather import MODULE_LOADING, Examined, known_settings
from spark_overlay.launch import PLUGINS
from spark_overlay.metrics_command import exposition
from spark_overlay.readiness import ReadinessError, read_record
from spark_overlay.settings import PREFIX, Settings
from spark_overlay.stats_file import StatsFileError, read_stats
from spark_overlay.support_bundle.figures import MANIFEST, STATS, readiness
from spark_overlay.support_bundle.known_text import DIGEST, ENGINE_ID, LEFT_OUT, NONCE, fits, reason
from spark_overlay.support_bundle.logs import end_of_log

STATS_FILE, READY_FILE = f"{PREFIX}_STATS_FILE", f"{PREFIX}_READY_FILE"
FILE_BYTES_MAX = 1 << 20
_FREE_TEXT = (f"{PREFIX}_START_ID",)
"""Settings whose value is whatever somebody typed; what the launcher makes of them is kept."""
_NEEDED = {PREFIX: "shm://none", f"{PREFIX}_IDENTITY": "0" * 64, f"{PREFIX}_MARKOV_IDENTITY": "0" * 64}
"""What settings need beside the one that is looked at."""
_WORKER_KEPT = {
    "worker_life": NONCE,
    **dict.fromkeys(("worker_identity", "worker_markov_identity"), DIGEST),
    "hello_status": "|".join(status.name for status in Status),
}


@dataclass(frozen=True)
class Asked:
    """What the operator named; everything else is found by the settings."""

    environ: Mapping[str, str]
    logs: Sequence[Path] = ()
    log_lines: int = 2000
    overlay: Path | None = None
    stats: Path | None = None
    ready: Path | None = None
    timeout_s: float = 5.0


@dataclass
class Collected:
    """files: by name, in order.  left_out: what is not there, with the reason; what was cut, with how much."""

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: object) -> None:
        """A JSON file."""
        self.files[name] = (json.dumps(value, indent=1) + "\n").encode()


def collect(asked: Asked, host: Host, asks: EngineAsks) -> Collected:
    """All of it.  Raises LogError on a log that was named and cannot be read."""
    found = Collected()
    for number, path in enumerate(asked.logs, 1):
        end = end_of_log(path, asked.log_lines)
        found.files[f"logs/{number}.log"] = "".join(f"{line}\n" for line in end.lines).encode()
        found.left_out[f"logs/{number}.log"] = f"{end.seen - len(end.lines)} of the last {end.seen} lines"
    examined = Examined(asked.environ, timeout_s=asked.timeout_s)
    facts, findings = examine_engine(host, asks, examined)
    found.add("doctor.json", _doctor(facts, findings))
    found.add("versions.json", {"packages": facts["packages"], "contracts": facts["contracts"]})
    found.add("settings.json", settings(asked.environ))
    found.add("host.json", _host(host, facts))
    _add_stats(found, asked)
    _add_readiness(found, asked)
    _add_overlay(found, asked)
    return found


def settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Our settings and two of others that decide whether we are loaded; of unknown names only their number."""
    known = set(known_settings().values())
    kept = {name: _setting(name, value) for name, value in environ.items() if name in known}
    ours = [name for name in environ if name.upper().startswith(PREFIX)]
    plugins, loading = environ.get(PLUGINS), environ.get(MODULE_LOADING)
    return {
        "settings": dict(sorted(kept.items())),
        "unknown_settings": len(ours) - len(kept),
        PLUGINS: plugins
        if plugins is None or fits(r"[a-z_]{1,40}(?:,[a-z_]{1,40})*|", plugins)
        else LEFT_OUT,
        MODULE_LOADING: loading if loading is None or loading in MODULE_LOADINGS else LEFT_OUT,
    }


def _setting(name: str, value: str) -> str:
    """Its value where it can be used: any other may be something that got there by mistake."""
    if name in _FREE_TEXT and not fits(ENGINE_ID, value):
        return LEFT_OUT
    try:
        Settings.model_validate(_NEEDED | {name: value})
    except ValidationError:
        return LEFT_OUT
    return value


def _doctor(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """Doctor's document without what a worker or an environment says in its own words."""
    environment = (
        "settings-given",
        "setting-names",
        "settings",
        "plugin-allowlist",
        "module-loading",
        "worker",
    )
    told = [
        finding.to_json() | ({"seen": LEFT_OUT, "repair": LEFT_OUT} if finding.check in environment else {})
        for finding in findings
    ]
    engine = dict(facts["engine"])
    worker = engine["worker"]
    engine["worker"] = None if worker is None else _worker(worker)
    for name in ("plugins", "module_loading"):
        engine.pop(name)
    kept = {name: value for name, value in facts.items() if name not in ("settings", "alike", "engine")}
    document = report.document(COMMAND, kept | {"engine": engine}, findings)
    return document | {"findings": told}


def _worker(results: Mapping[str, Any]) -> dict[str, Any]:
    """What the probe learnt, but for the worker's own texts."""
    kept: dict[str, Any] = {name: value for name, value in results.items() if isinstance(value, int | float)}
    kept |= {name: results.get(name) for name, form in _WORKER_KEPT.items() if fits(form, results.get(name))}
    if results.get("error"):
        kept["error"] = reason(str(results["error"]))
    return kept


def _host(host: Host, facts: Facts) -> dict[str, Any]:
    """Kernel, limits, interfaces and RDMA devices."""
    devices = rdma_devices.devices(host.root / "sys/class/infiniband")
    return {
        "kernel": facts["kernel"],
        "machine": facts["machine"],
        "limits": host.limits(),
        "interfaces": facts["interfaces"],
        "rdma_devices": [asdict(device) for device in devices],
        "rdma_choices": {link["address"]: link["rdma"] for link in facts["links"]},
    }


def _add_stats(found: Collected, asked: Asked) -> None:
    path = asked.stats or _path(asked.environ, STATS_FILE)
    if path is None:
        found.left_out["stats.json"] = f"{STATS_FILE} is not set"
        return
    try:
        read = read_stats(path)
    except StatsFileError:
        found.left_out["stats.json"] = "the stats file is missing or is none"
        return
    kept = STATS(dict(read.stats))
    found.add("stats.json", {"written_s": read.written_s, "stats": kept})
    with tempfile.TemporaryDirectory(prefix="spark-overlay-bundle-") as folder:
        filtered = Path(folder, "stats.json")
        filtered.write_text(json.dumps(_without_count(kept)), encoding="utf-8")
        os.utime(filtered, (read.written_s, read.written_s))
        text, problem = exposition(filtered)
    if problem:
        found.left_out["metrics.txt"] = "the figures that are kept cannot be exported"
    else:
        found.files["metrics.txt"] = text.encode()


def _without_count(value: Any) -> Any:
    """The figures as an engine wrote them, without our count of what was left out."""
    if isinstance(value, dict):
        return {name: _without_count(inner) for name, inner in value.items() if name != "left_out"}
    return value


def _add_readiness(found: Collected, asked: Asked) -> None:
    path = asked.ready or _path(asked.environ, READY_FILE)
    if path is None:
        found.left_out["ready.json"] = f"{READY_FILE} is not set"
        return
    try:
        record = read_record(path)
    except ReadinessError:
        record = None
    if record is None:
        found.left_out["ready.json"] = "the readiness record is missing or is none"
    else:
        found.add("ready.json", readiness(record))


def _add_overlay(found: Collected, asked: Asked) -> None:
    if asked.overlay is None:
        found.left_out["overlay.json"] = "no manifest of a file overlay was named (--overlay)"
        return
    try:
        found.add("overlay.json", MANIFEST(json.loads(read_plain(asked.overlay, FILE_BYTES_MAX))))
    except (OSError, ValueError, RecursionError):
        found.left_out["overlay.json"] = "the manifest of the file overlay is missing or is none"


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name)
    return Path(value) if value else None
