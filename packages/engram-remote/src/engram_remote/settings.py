"""The engine's settings for remote tables: one definition, read once from the environment, frozen.

Owns names, defaults, checks and the sentences of the errors; docs/engram/settings.md is generated from it
(`python -m engram_remote.settings docs/engram/settings.md`).  Must never read the environment by itself, nor import
torch or vLLM.
"""

import difflib
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from ofl.documents import rewrite
from ofl.endpoint import Endpoint, parse_endpoint
from ofl.errors import EndpointError
from ofl.keys import KeyFileError, check_key
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

PREFIX = "VLLM_ENGRAM_REMOTE"

NOT_OURS = {f"{PREFIX}_ROOT": "the package is installed, and no folder of sources is read"}
"""Names of earlier deployments that mean nothing here, with the reason; refused, because ignoring them would hide
that.
"""

MILLISECONDS_MIN = 0.001
"""Below one microsecond a deadline has passed before it is set."""
MILLISECONDS_MAX = 600_000
"""Ten minutes: the longest span that the client takes."""
SECONDS_MAX = 86_400
READ_THREADS_MAX = 1024
MS = 1_000_000


class SettingsError(ValueError):
    """The environment asks for something that cannot be done; the text has one sentence per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


def _endpoints(text: object) -> tuple[str, ...]:
    found = []
    for index, one in enumerate(str(text).split(",")):
        try:
            endpoint = parse_endpoint(one)
        except EndpointError as error:
            raise ValueError(f"entry {index}: {error}") from None
        if not endpoint.connectable:
            raise ValueError(
                f"entry {index}: endpoint {one!r}: port 0 can be listened on but not connected to"
            )
        found.append(str(endpoint))
    return tuple(found)


def _milliseconds(value: float) -> float:
    return _between(value, MILLISECONDS_MIN, MILLISECONDS_MAX)


def _seconds(value: float) -> float:
    return _between(value, 0.001, SECONDS_MAX)


def _between(value: float, low: float, high: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"a finite number above 0 is needed, not {value}")
    if not low <= value <= high:
        raise ValueError(f"{low} to {high} is needed, not {value}")
    return value


def _threads(value: int) -> int:
    if not 1 <= value <= READ_THREADS_MAX:
        raise ValueError(f"1 to {READ_THREADS_MAX} is needed, not {value}")
    return value


def _path(path: Path) -> Path:
    if path.name in ("", ".."):
        raise ValueError(f"{str(path)!r} names nothing")
    return path


def _named(name: str, meaning: str, default: object = ...) -> Any:
    """A setting: its variable, and its meaning for the documentation."""
    return Field(default=default, alias=PREFIX + name, description=meaning)


Milliseconds = Annotated[float, AfterValidator(_milliseconds)]
Seconds = Annotated[float, AfterValidator(_seconds)]
Threads = Annotated[int, AfterValidator(_threads)]
PathTo = Annotated[Path, AfterValidator(_path)]


class Settings(BaseModel):
    """What the operator asked for.  Build it with `from_environ`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    endpoints: tuple[str, ...] = _named(
        "",
        "the table servers, a comma list with one entry for each head shard (the tensor-parallel rank), or one entry "
        "for all: `rdma://host:port?bind=address`, `tcp://host:port?bind=address` or `shm://name`; unset or empty: "
        "stock vLLM, untouched",
    )
    tables: Path = _named(
        "_TABLES",
        "folder with `manifest.json` and this rank's shards, as `engram-remote build` makes it; what the server does "
        "not answer in time is read from there",
    )
    timeout_ms: Milliseconds = _named(
        "_TIMEOUT_MS",
        "milliseconds that a lookup may wait for the server, at most; the local shard answers it then",
        100.0,
    )
    required: bool = _named(
        "_REQUIRED",
        "1: the engine starts only where every rank's server has accepted the tables' identity; 0: it starts on the "
        "local shards, and the server is used as soon as it is there",
        False,
    )
    connect_timeout_ms: Milliseconds = _named(
        "_CONNECT_TIMEOUT_MS", "milliseconds for one attempt to connect and to open the tables", 5000.0
    )
    retry_ms: Milliseconds = _named(
        "_RETRY_MS", "milliseconds before the first new attempt to connect; doubles with each failure", 5000.0
    )
    retry_max_ms: Milliseconds = _named("_RETRY_MAX_MS", "milliseconds between attempts, at most", 60000.0)
    key_file: PathTo | None = _named(
        "_KEY_FILE",
        "file with the key that both sides prove to each other (`ofl keygen` makes one); unset: nothing is proved, "
        "and a server that has a key refuses",
        None,
    )
    bounce: bool = _named(
        "_BOUNCE",
        "1: replies land in a second buffer and the CPU copies them into staging, for hosts where the GPU may not read "
        "what the network card wrote; 0: they land in staging",
        False,
    )
    checksum: bool = _named(
        "_CHECKSUM",
        "1: each reply carries a checksum over ids and rows; one that does not fit is answered from the local shard",
        False,
    )
    buffered: bool = _named(
        "_BUFFERED",
        "1: read the local shard through the page cache; 0: past it (O_DIRECT) where the file system can",
        False,
    )
    pread: bool = _named(
        "_PREAD", "1: read the local shard with a pool of threads even where io_uring could", False
    )
    read_threads: Threads = _named("_READ_THREADS", "threads of that pool", 64)
    spin_ms: Milliseconds = _named(
        "_SPIN_MS",
        "milliseconds for which the thread that serves lookups looks for the next one without sleeping",
        1000.0,
    )
    log_s: Seconds = _named("_LOG_S", "seconds of traffic between two log lines with the counters", 60.0)
    ready_file: PathTo | None = _named(
        "_READY_FILE",
        "each rank writes `FILE.RANK` when its model is loaded with remote tables, before the engine serves; unset: "
        "none",
        None,
    )
    start_id: str = _named(
        "_START_ID", "any text that names this start of the engine; repeated in those files", ""
    )

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings | None":
        """The settings, or None where VLLM_ENGRAM_REMOTE is unset or empty, as empty counts as unset.

        Raises SettingsError with everything that is wrong, a sentence for each.
        """
        # In any case: a setting in lower case is a mistake to be told, not one to be ignored.
        given: dict[str, object] = {
            name: value for name, value in environ.items() if name.upper().startswith(PREFIX) and value != ""
        }
        if PREFIX not in given:
            return None
        known = [str(field.alias) for field in cls.model_fields.values()]
        problems = [_unknown(name, known) for name in sorted(given) if name not in known]
        try:
            given[PREFIX] = _endpoints(given[PREFIX])
        except ValueError as error:
            problems.append(f"{PREFIX}: {error}.")
            given[PREFIX] = ("",)
        settings = None
        try:
            settings = cls.model_validate({name: given[name] for name in known if name in given})
        except ValidationError as error:
            problems += [_sentence(found) for found in error.errors()]
        if settings is not None and settings.retry_max_ms < settings.retry_ms:
            pair = f"{settings.retry_max_ms:g} is below {PREFIX}_RETRY_MS, {settings.retry_ms:g}"
            problems.append(f"{PREFIX}_RETRY_MAX_MS: {pair}.")
        if problems or settings is None:
            raise SettingsError(problems)
        return settings

    def endpoint(self, rank: int, ranks: int) -> Endpoint:
        """The server of a head shard.  Raises SettingsError where the list has neither one entry nor one a shard."""
        if len(self.endpoints) not in (1, ranks):
            raise SettingsError(
                [f"{PREFIX}: {len(self.endpoints)} entries, where the engine has {ranks} head shards."]
            )
        return parse_endpoint(self.endpoints[rank if len(self.endpoints) > 1 else 0])

    def check_files(self) -> None:
        """Raises SettingsError on a key that may not be used, on tables that are no folder and on a record that could
        never be written: before an engine loads.
        """
        problems = []
        if self.key_file is not None:
            try:
                check_key(self.key_file)
            except KeyFileError as error:
                problems.append(f"{PREFIX}_KEY_FILE: {error}.")
        if not self.tables.is_dir():
            problems.append(f"{PREFIX}_TABLES: {self.tables.absolute()} is not a folder.")
        if self.ready_file is not None and not self.ready_file.absolute().parent.is_dir():
            problems.append(f"{PREFIX}_READY_FILE: {self.ready_file.absolute().parent} is not a folder.")
        if problems:
            raise SettingsError(problems)


def _unknown(name: str, known: list[str]) -> str:
    """A sentence for a variable that does not exist, with the nearest that does."""
    if name in NOT_OURS:
        return f"{name}: {NOT_OURS[name]}; remove it."
    near = difflib.get_close_matches(name.upper(), known, n=1)
    return f"{name}: no such setting{f'; did you mean {near[0]}?' if near else '.'}"


def _sentence(found: ErrorDetails) -> str:
    """One problem as pydantic found it, as a sentence that names the variable."""
    name = found["loc"][0]
    if found["type"] == "missing":
        return f"{name}: it must be set."
    if found["type"] == "value_error":
        return f"{name}: {found['msg'].removeprefix('Value error, ')}."
    clause = found["msg"].removeprefix("Input should be ").split(",")[0]
    return f"{name}: {found['input']!r} is given where {clause} is needed."


def settings_table() -> str:
    """The settings as a Markdown table, for docs/engram/settings.md."""
    lines = ["| Variable | Default | Meaning |", "|---|---|---|"]
    for field in Settings.model_fields.values():
        default = "required" if field.is_required() else _shown(field.default)
        lines.append(f"| `{field.alias}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if value is None or value == "":
        return "unset"
    if isinstance(value, bool):
        return f"`{int(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    rewrite(document.parent, {document.name: {"settings": settings_table()}})
