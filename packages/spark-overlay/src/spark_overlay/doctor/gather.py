"""Makes the facts of an engine's environment: plain JSON values beside those of `ofl.doctor.gather`.

Judges nothing.  Must never keep a value of a setting that is none of ours, but for the engine's depth policy.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ofl.contract.identity import parse_digest
from ofl.doctor.gather import MEMLOCK_BYTES, Wanted
from ofl.endpoint import parse_endpoint
from ofl.errors import EndpointError
from ofl.files import read_plain

from spark_overlay.depth.rules import FILE, POLICY
from spark_overlay.depth.tables import shown
from spark_overlay.doctor.asks import EngineAsks
from spark_overlay.launch import PLUGINS
from spark_overlay.settings import PREFIX, Settings, SettingsError, unknown_setting
from spark_overlay.vllm_seam.versions import SEAMS, public_version

ALIKE = ("policy", "shadow_use", "on_fail", "draft_ms", "round_ms")
ENGINE_ALIKE = (POLICY, FILE)
"""Settings that decide a step's collectives or how deep it verifies, ours by field and the engine's by name: the seam
refuses ranks that differ in them.
"""
IDENTITIES = ("identity", "markov_identity")
MODULE_LOADING = "CUDA_MODULE_LOADING"
SPECULATIVE = ("--speculative-config", "--speculative_config", "-sc")
MEMLOCK_SPARE_BYTES = 8 << 20
"""Beside a message each way: receives and send slots, 1.5 MiB a connection, and a second connection while one ends."""
FILE_BYTES_MAX = 1 << 20


class IdentityFileError(ValueError):
    """The file is no identity.json; the text names it and what is wrong."""


@dataclass(frozen=True)
class Examined:
    """What the facts are made of.

    command: of the engine, empty where none was given.  timeout_s: 0 asks no worker.  rank: of the engine's hosts, 0
    for the first, which alone talks to the worker.  remote: whether the engine is to draft remotely.
    """

    environ: Mapping[str, str]
    command: Sequence[str] = ()
    identity_file: Path | None = None
    timeout_s: float = 5.0
    rank: int = 0
    remote: bool = True


def known_settings() -> dict[str, str]:
    """Names of the settings by field."""
    return {name: str(field.alias) for name, field in Settings.model_fields.items()}


def engine_facts(asks: EngineAsks, examined: Examined) -> dict[str, Any]:
    """The facts by name: "settings", "engine", "identities" and "alike".  Raises IdentityFileError."""
    environ = examined.environ
    settings, found = settings_facts(environ)
    version = asks.engine_version()
    supported = sorted(SEAMS)
    bound = asks.bound_file(version) if public_version(version) in SEAMS else None
    engine = {
        "plugins": environ.get(PLUGINS),
        "plugin_seen": asks.plugin_seen(),
        "version": version,
        "supported": supported,
        "bound_file": None if bound is None else asdict(bound),
        "module_loading": environ.get(MODULE_LOADING, ""),
        "asynchronous": environ.get(f"{PREFIX}_ASYNC", "") not in ("", "0"),
        "speculative": speculative(examined.command),
        "files": [] if settings is None else files(settings, asks),
        "identity_file": None if examined.identity_file is None else read_identities(examined.identity_file),
        "rank": examined.rank,
        "remote": examined.remote,
        "worker": None,
    }
    if settings is not None and examined.timeout_s > 0 and examined.rank == 0:
        engine["worker"] = asks.ask_worker(settings, examined.timeout_s)
    stated = {} if settings is None else {name: getattr(settings, name) for name in IDENTITIES}
    together = {} if settings is None else alike(settings, environ)
    return {"settings": found, "engine": engine, "identities": stated, "alike": together}


def alike(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """What every rank must be set to alike, by variable, as it would be exported; what is unset is not there."""
    names = known_settings()
    values = {names[name]: getattr(settings, name) for name in ALIKE}
    values |= {name: environ.get(name) or None for name in ENGINE_ALIKE}
    return {name: _exported(value) for name, value in values.items() if value is not None}


def _exported(value: object) -> str:
    """The same text for the same value, however it was written: a cost table is compared by its numbers."""
    if isinstance(value, float):
        return shown([value])
    return shown(value) if isinstance(value, tuple) else str(value)


def wanted(examined: Examined) -> Wanted:
    """What the host is to do, as far as the settings can be read."""
    environ = examined.environ
    settings, _ = settings_facts(environ)
    given = environ.get(PREFIX, "") if examined.rank == 0 else ""
    try:
        endpoint = str(parse_endpoint(given)) if given else None
    except EndpointError:
        endpoint = None
    locked = MEMLOCK_BYTES if settings is None else 2 * settings.frame_bytes + MEMLOCK_SPARE_BYTES
    return Wanted(
        role="engine",
        endpoint=endpoint,
        key_file=environ.get(f"{PREFIX}_KEY_FILE") or None,
        connect_s=examined.timeout_s,
        memlock_bytes=locked,
    )


def settings_facts(environ: Mapping[str, str]) -> tuple[Settings | None, dict[str, Any]]:
    """The settings where they can be used, and what is wrong with names and with values, told apart."""
    known = list(known_settings().values())
    given = {name: value for name, value in environ.items() if name.upper().startswith(PREFIX) and value}
    strange = sorted(name for name in given if name not in known)
    found: dict[str, Any] = {
        "given": bool(environ.get(PREFIX)),
        "unknown": {name: unknown_setting(name, known) for name in strange},
        "problems": [],
        "values": {name: given[name] for name in known if name in given},
    }
    try:
        settings = Settings.from_environ({name: given[name] for name in given if name in known})
    except SettingsError as error:
        return None, found | {"problems": error.problems}
    return settings, found


def files(settings: Settings, asks: EngineAsks) -> list[dict[str, str]]:
    """Every file that is set and is not the key, with what is wrong with its place."""
    try:
        settings.check_files()
        problems = []
    except SettingsError as error:
        problems = error.problems
    found = []
    for field, name in known_settings().items():
        path = getattr(settings, field)
        if not isinstance(path, Path) or field == "key_file":
            continue
        said = [text.removeprefix(f"{name}: ") for text in problems if text.startswith(f"{name}: ")]
        fault = said[0] if said else asks.write_fault(path)
        found.append({"setting": name, "path": str(path), "fault": fault})
    return found


def speculative(command: Sequence[str]) -> dict[str, Any] | None:
    """What the engine's command says of speculative decoding; None where no command was given.

    method: "" where there is none; fault: why it cannot be read.
    """
    if not command:
        return None
    found = {"method": "", "fault": ""}
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in (f"{option}.method" for option in SPECULATIVE):
            return found | {"method": value if equals else _after(command, at)}
        if name not in SPECULATIVE:
            continue
        text = value if equals else _after(command, at)
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            return found | {"fault": f"{name} is not JSON"}
        if not isinstance(read, dict):
            return found | {"fault": f"{name} is not a JSON object"}
        return found | {"method": str(read.get("method", ""))}
    return found


def _after(command: Sequence[str], at: int) -> str:
    return command[at + 1] if at + 1 < len(command) else ""


def read_identities(path: Path) -> dict[str, str]:
    """Both digests of an identity.json.  Raises IdentityFileError."""
    try:
        values = json.loads(read_plain(path, FILE_BYTES_MAX))
    except OSError as error:
        raise IdentityFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise IdentityFileError(f"{path} is not JSON") from None
    if not isinstance(values, dict):
        raise IdentityFileError(f"{path} is not a JSON object")
    try:
        return {name: parse_digest(str(values.get(name, "")), name).hex() for name in IDENTITIES}
    except ValueError as error:
        raise IdentityFileError(f"{path}: {error}") from None
