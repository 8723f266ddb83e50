"""The overlay's settings: one definition, read once from the environment, frozen.

Owns names, defaults, checks and the sentences of the errors; docs/operations/settings.md is generated
from it.  Must never read the environment by itself, nor import torch or vLLM.
"""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from ofl.contract.identity import parse_digest
from ofl.endpoint import parse_endpoint
from ofl.keys import KeyFileError, check_key
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from spark_overlay.depth.rules import Costs
from spark_overlay.depth.tables import draft_cost, round_table

PREFIX = "VLLM_DSPARK_REMOTE"

NOT_BUILT_YET = {
    f"{PREFIX}_{name}"
    for name in (
        "ASYNC",
        "ASYNC_NAP_US",
        "ASYNC_PROXY",
        "ASYNC_RESPAWNS",
        "ASYNC_RESPAWN_RESET_S",
        "ASYNC_SPIN_US",
        "ASYNC_WATCHDOG_MS",
        "FUSED_GATHER",
        "HOSTFLAG_LIB",
        "OFL_DIR",
        "SWITCH_INTERVAL_US",
    )
}
"""Names that operators know from earlier deployments and that this version refuses instead of ignoring."""

MILLISECONDS_MIN = 0.001
"""Below one microsecond a deadline has passed before it is set."""
MILLISECONDS_MAX = 86_400_000
"""One day; deadlines are 64-bit nanoseconds, and waits of the interpreter overflow not far above."""


class SettingsError(ValueError):
    """The environment asks for something that cannot be done; the text has one sentence per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


def _endpoint(text: str) -> str:
    endpoint = parse_endpoint(text)
    if not endpoint.connectable:
        raise ValueError(f"endpoint {text!r}: port 0 can be listened on but not connected to")
    return str(endpoint)


def _digest(text: str) -> str:
    try:
        parse_digest(text, "")
    except ValueError:
        raise ValueError(f"64 lower-case hex digits are needed, not {text!r}") from None
    return text


def _positive(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"a finite number above 0 is needed, not {value}")
    if not MILLISECONDS_MIN <= value <= MILLISECONDS_MAX:
        raise ValueError(f"{MILLISECONDS_MIN} to {MILLISECONDS_MAX} is needed, not {value}")
    return value


def _draft_cost(value: object) -> object:
    return draft_cost(value) if isinstance(value, str) else value


def _round_table(value: object) -> object:
    return round_table(value) if isinstance(value, str) else value


def _file(path: Path) -> Path:
    if path.name in ("", ".."):
        raise ValueError(f"{str(path)!r} names no file")
    return path


def _named(name: str, meaning: str, default: object = ...) -> Any:
    """A setting: its variable, and its meaning for the documentation."""
    return Field(default=default, alias=PREFIX + name, description=meaning)


Milliseconds = Annotated[float, AfterValidator(_positive)]
Digest = Annotated[str, AfterValidator(_digest)]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
File = Annotated[Path, AfterValidator(_file)]
DraftCost = Annotated[float, BeforeValidator(_draft_cost)]
RoundTable = Annotated[tuple[float, ...], BeforeValidator(_round_table)]


class Settings(BaseModel):
    """What the operator asked for.  Build it with `from_environ`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    endpoint: Annotated[str, AfterValidator(_endpoint)] = _named(
        "",
        "the worker, `tcp://host:port?bind=address`, `rdma://host:port?bind=address` or `shm://name`; unset or empty: "
        "the overlay does nothing at all",
    )
    key_file: File | None = _named(
        "_KEY_FILE",
        "file with the key that both sides prove to each other (`ofl keygen` makes one); unset: nothing is proved, "
        "and a worker that has a key refuses",
        None,
    )
    policy: Literal["capacity", "resilience", "shadow"] = _named(
        "_POLICY",
        "`capacity`: no local drafter, a failed round decodes without drafts; `resilience`: a failed round is drafted "
        "by the local drafter; `shadow`: both draft in every round and are compared",
        "capacity",
    )
    shadow_use: Literal["local", "remote"] = _named(
        "_SHADOW_USE",
        "in `shadow`, whose drafts are verified; a failed remote draft is replaced by the local one",
        "local",
    )
    identity: Digest = _named(
        "_IDENTITY", "the drafter's identity (`identity.json` of `x86-worker identity`), 64 hex digits"
    )
    markov_identity: Digest = _named(
        "_MARKOV_IDENTITY", "the identity of its Markov tensors (same file), 64 hex digits"
    )
    timeout_ms: Milliseconds = _named("_TIMEOUT_MS", "milliseconds that a round may take, at most", 50.0)
    n_out: bool = _named(
        "_N_OUT",
        "1: ask the worker only for the draft positions to be verified; 0: always for all",
        True,
    )
    draft_ms: DraftCost | None = _named(
        "_DRAFT_MS",
        "milliseconds that a remote round costs, where draft depth is chosen by cost ([depth.md](depth.md)); not used "
        "in `shadow`",
        None,
    )
    round_ms: RoundTable | None = _named(
        "_ROUND_MS",
        "milliseconds of a verification without drafting, by depth 0 to K with commas between, for engines whose depth "
        "policy reads a table ([depth.md](depth.md)); not used in `shadow`",
        None,
    )
    on_fail: Literal["draft-nothing", "raise"] = _named(
        "_ON_FAIL",
        "`draft-nothing`: a failed round decodes without drafts; `raise`: it ends the engine",
        "draft-nothing",
    )
    trip: Count = _named(
        "_TRIP",
        "failed attempts in a row after which the circuit breaker opens; 0: never",
        3,
    )
    cooldown: Size = _named(
        "_COOLDOWN",
        "rounds that an open breaker keeps off the network, before one round probes the worker",
        256,
    )
    alarm_rounds: Count = _named(
        "_ALARM_ROUNDS",
        "verified rounds in a row without one accepted draft after which the log warns; 0: never",
        200,
    )
    ring_rows: Size = _named(
        "_RING_ROWS",
        "context rows kept per slot for a full-attention drafter; a windowed one keeps what its window needs",
        1024,
    )
    round_bytes: Size = _named(
        "_ROUND_BYTES",
        "bytes of context rows in one round, at most; more go over several rounds",
        32 << 20,
    )
    frame_bytes: Size = _named("_FRAME_BYTES", "bytes of the largest message, as offered in HELLO", 16 << 20)
    connect_timeout_ms: Milliseconds = _named(
        "_CONNECT_TIMEOUT_MS",
        "milliseconds for one attempt to connect and open a session",
        5000.0,
    )
    retry_ms: Milliseconds = _named(
        "_RETRY_MS", "milliseconds before the first new attempt to connect; doubles with each failure", 1000.0
    )
    retry_max_ms: Milliseconds = _named("_RETRY_MAX_MS", "milliseconds between attempts, at most", 30000.0)
    log_every: Count = _named(
        "_LOG_EVERY",
        "rounds between two log lines, each with a write of the stats file; 0: only at the end",
        1000,
    )
    stats_file: File | None = _named(
        "_STATS_FILE", "file for the figures, replaced as a whole, every ten seconds at least", None
    )
    ready_file: File | None = _named(
        "_READY_FILE",
        "file for the record that the overlay took effect, for the launcher",
        None,
    )
    control_file: File | None = _named(
        "_CONTROL_FILE",
        "file in which operators ask a running engine to pause, resume or rearm remote drafting (`spark-overlay "
        "pause`, [control.md](control.md)); read by rank 0 alone; unset: there is no such control",
        None,
    )
    start_id: str = _named(
        "_START_ID", "any text that names this start of the engine; repeated in that record", ""
    )

    @property
    def costs(self) -> Costs:
        """Both costs of remote drafting, for `spark_overlay.depth.rules`."""
        return Costs(self.draft_ms, self.round_ms)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings | None":
        """The settings, or None where VLLM_DSPARK_REMOTE is unset or empty, as empty counts as unset.

        Raises SettingsError with everything that is wrong, a sentence for each.
        """
        # In any case: a setting in lower case is a mistake to be told, not one to be ignored.
        given = {
            name: value for name, value in environ.items() if name.upper().startswith(PREFIX) and value != ""
        }
        if PREFIX not in given:
            return None
        known = [str(field.alias) for field in cls.model_fields.values()]
        problems = [unknown_setting(name, known) for name in sorted(given) if name not in known]
        settings = None
        try:
            settings = cls.model_validate({name: given[name] for name in known if name in given})
        except ValidationError as error:
            problems += [setting_sentence(found) for found in error.errors()]
        if settings is not None and settings.retry_max_ms < settings.retry_ms:
            pair = f"{settings.retry_max_ms:g} is below {PREFIX}_RETRY_MS, {settings.retry_ms:g}"
            problems.append(f"{PREFIX}_RETRY_MAX_MS: {pair}.")
        if problems or settings is None:
            raise SettingsError(problems)
        return settings

    def check_files(self) -> None:
        """Raises SettingsError on a key that may not be used and on a file that could never be written: before an
        engine loads.
        """
        problems = []
        if self.key_file is not None:
            try:
                check_key(self.key_file)
            except KeyFileError as error:
                problems.append(f"{PREFIX}_KEY_FILE: {error}.")
        written = (("_STATS_FILE", self.stats_file), ("_READY_FILE", self.ready_file))
        for name, path in (*written, ("_CONTROL_FILE", self.control_file)):
            if path is not None and not path.absolute().parent.is_dir():
                problems.append(f"{PREFIX}{name}: {path.absolute().parent} is not a folder.")
            elif path is not None and path.is_dir():
                problems.append(f"{PREFIX}{name}: {path} is a folder.")
            elif path is not None and path.exists() and not path.is_file():
                # It would be replaced, as every file of ours is: for root even /dev/null.
                problems.append(f"{PREFIX}{name}: {path} is not a regular file.")
        if self.stats_file is not None and self.stats_file == self.ready_file:
            problems.append(f"{PREFIX}_STATS_FILE: {self.stats_file} is the ready file too.")
        for name, path in written:
            if path is not None and path == self.control_file:
                problems.append(f"{PREFIX}_CONTROL_FILE: {path} is the file of {PREFIX}{name} too.")
        if problems:
            raise SettingsError(problems)


def unknown_setting(name: str, known: list[str]) -> str:
    """A sentence for a variable that does not exist, with the nearest that does."""
    if name in NOT_BUILT_YET:
        return f"{name}: this setting is not built yet in this version; remove it."
    near = difflib.get_close_matches(name.upper(), known, n=1)
    return f"{name}: no such setting{f'; did you mean {near[0]}?' if near else '.'}"


def setting_sentence(found: ErrorDetails) -> str:
    """One problem as pydantic found it, as a sentence that names the variable."""
    name = found["loc"][0]
    if found["type"] == "missing":
        return f"{name}: it must be set."
    if found["type"] == "value_error":
        return f"{name}: {found['msg'].removeprefix('Value error, ')}."
    clause = found["msg"].removeprefix("Input should be ")
    if found["type"] != "literal_error":
        clause = clause.split(",")[0]
    return f"{name}: {found['input']!r} is given where {clause} is needed."


def settings_table(settings: type[BaseModel] = Settings) -> str:
    """The settings as a Markdown table, for docs/operations/settings.md."""
    lines = ["| Variable | Default | Meaning |", "|---|---|---|"]
    for field in settings.model_fields.values():
        default = "required" if field.is_required() else _shown(field.default)
        lines.append(f"| `{field.alias}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


def not_built_yet_list() -> str:
    """The known names that are refused, for docs/operations/settings.md."""
    return "\n".join(f"- `{name}`" for name in sorted(NOT_BUILT_YET)) + "\n"


def _shown(value: object) -> str:
    if value is None or value == "":
        return "unset"
    if isinstance(value, bool):
        return f"`{int(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
