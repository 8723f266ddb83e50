"""From a launch to what one host runs: the engine's environment and its command.

Owns the order of both and what must be alike on all hosts; of several hosts only the node's number, its address and
who listens differ.  vLLM's own multi-node way is used (`--nnodes`, `--node-rank`, `--master-addr`, `--headless` on
all but the first host), which every supported version has.  Must never put a secret into either.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ofl.endpoint import parse_endpoint
from ofl.errors import EndpointError

from spark_overlay.launching.combinations import combination_problems, engine_version
from spark_overlay.launching.identity import Identities, read_identities
from spark_overlay.launching.layers import Launch
from spark_overlay.launching.model import Argument, Scalar
from spark_overlay.launching.names import TABLES_PREFIX, key_of
from spark_overlay.launching.problems import ConfigError, Problem, check
from spark_overlay.launching.sections import extra_problems
from spark_overlay.settings import PREFIX, Settings, SettingsError

UNREAD = Identities("0" * 64, "0" * 64)
"""Stand for an identity file that lies on another host."""


@dataclass(frozen=True)
class Rendering:
    """What one host runs.

    environment: variables that the config decides, in order.  command: the engine's, with its options.
    drafts_remotely, reads_tables: what must prove itself.  local_ranks: ranks on this host.  first_host: address and
    master port of rank 0's host, None on that host itself.
    """

    name: str
    rank: int
    environment: Mapping[str, str]
    command: tuple[str, ...]
    drafts_remotely: bool
    reads_tables: bool
    local_ranks: int
    first_host: tuple[str, int] | None


def render(launch: Launch, rank: int | None, extra: Sequence[str] = (), *, here: bool = True) -> Rendering:
    """What the host of this rank runs.  rank: of the host, None where there is one.  extra: further options.

    here: this is that host, so its files are looked at.  Raises ConfigError with everything that is wrong.
    """
    version = launch.site.vllm_version or (engine_version() if here else "")
    check(
        [
            *_missing(launch),
            *_nodes(launch, rank),
            *extra_problems(extra),
            *combination_problems(launch, version),
            *(_weights(launch) if here else ()),
        ]
    )
    number = rank or 0
    environment = {**_remote(launch, here=here), **_tables(launch), **_own(launch, number)}
    return Rendering(
        name=launch.name,
        rank=number,
        environment=environment,
        command=(*_command(launch, number), *extra),
        drafts_remotely=launch.parts.remote is not None,
        reads_tables=launch.parts.tables is not None,
        local_ranks=launch.site.tensor_parallel_size // max(1, len(launch.site.hosts)),
        first_host=(launch.site.hosts[0], launch.site.master_port) if number else None,
    )


def text_of(value: Scalar) -> str:
    """A value as the environment has it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def options(name: str, value: Argument) -> list[str]:
    """One option of the engine's command."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list):
        return [f"--{name}", *value]
    return [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]


def _missing(launch: Launch) -> Iterator[Problem]:
    site = launch.site
    if site.target is None and any("{target}" in word for word in site.command):
        yield launch.problem("it must be set: the target model", "target")
    if launch.parts.speculative is not None and site.drafter is None:
        yield launch.problem("it must be set: the drafter's folder on this host", "drafter")
    if launch.parts.remote is not None:
        if site.worker is None:
            yield launch.problem("it must be set: the worker's endpoint", "worker")
        if site.identity_file is None and (site.identity is None or site.markov_identity is None):
            yield launch.problem(
                "it must be set, or both identity and markov_identity: which drafter the worker must have",
                "identity_file",
            )
    if launch.parts.tables is not None:
        for key, what in (("servers", "the table servers"), ("tables", "the folder of this host's shards")):
            if key not in launch.parts.tables:
                yield launch.problem(f"it must be set: {what}", f"tables.{key}")
        yield from _servers(launch)


def _servers(launch: Launch) -> Iterator[Problem]:
    ranks, field = launch.site.tensor_parallel_size, "tables.servers"
    servers = str((launch.parts.tables or {}).get("servers", "")).split(",")
    if servers == [""]:
        return
    if len(servers) not in (1, ranks):
        yield launch.problem(
            f"{len(servers)} servers are given for {ranks} ranks: one, or one for each", field
        )
    for number, server in enumerate(servers):
        try:
            parse_endpoint(server)
        except EndpointError as error:
            yield launch.problem(f"entry {number}: {error}", field)


def _nodes(launch: Launch, rank: int | None) -> Iterator[Problem]:
    site, count = launch.site, len(launch.site.hosts)
    if count > 1 and rank is None:
        yield Problem(f"{count} hosts are given: say which of them this is, 0 to {count - 1}", "--rank")
    elif rank is not None and rank >= max(1, count):
        yield Problem(f"{rank} is given where hosts has {count}; 0 is the first", "--rank")
    if site.tensor_parallel_size % max(1, count):
        yield launch.problem(
            f"{site.tensor_parallel_size} ranks cannot be shared alike by {count} hosts",
            "tensor_parallel_size",
        )
    if len(set(site.hosts)) != count:
        yield launch.problem("one address is given twice", "hosts")


def _weights(launch: Launch) -> Iterator[Problem]:
    """A drafter's folder on this host that vLLM would look into in vain."""
    drafter = launch.site.drafter
    if drafter is None or not Path(drafter).is_dir():
        return
    folder = Path(drafter)
    if not (folder / "config.json").is_file():
        yield launch.problem(f"{folder} has no config.json", "drafter")
    elif launch.config.drafter_weights and not any(
        True for kind in ("*.safetensors", "*.bin", "*.pt") for _ in folder.glob(kind)
    ):
        yield launch.problem(
            f"{launch.name} drafts on this host too, and {folder} holds no weights", "drafter"
        )


def _remote(launch: Launch, *, here: bool) -> dict[str, str]:
    """The overlay's own variables, checked as an engine would."""
    given, site = launch.parts.remote, launch.site
    if given is None:
        return {}
    identities = Identities(site.identity, site.markov_identity)
    if site.identity_file is not None:
        identities = read_identities(launch) if here else UNREAD
    made = {
        PREFIX: str(site.worker),
        f"{PREFIX}_IDENTITY": str(identities.drafter),
        f"{PREFIX}_MARKOV_IDENTITY": str(identities.markov),
        **{f"{PREFIX}_{key.upper()}": text_of(value) for key, value in given.items()},
    }
    try:
        Settings.from_environ(made)
    except SettingsError as error:
        raise ConfigError([_told_by_field(launch, sentence) for sentence in error.problems]) from None
    return made


def _told_by_field(launch: Launch, sentence: str) -> Problem:
    """An engine's sentence, which begins with the variable, told of the field that set it."""
    variable, _, clause = sentence.partition(": ")
    return launch.problem(clause.removesuffix("."), f"remote.{key_of(variable, PREFIX)}")


def _tables(launch: Launch) -> dict[str, str]:
    given = launch.parts.tables or {}
    names = {key: TABLES_PREFIX if key == "servers" else f"{TABLES_PREFIX}_{key.upper()}" for key in given}
    first = {"servers": given["servers"]} if given else {}
    return {names[key]: text_of(value) for key, value in {**first, **given}.items()}


def _own(launch: Launch, rank: int) -> dict[str, str]:
    """What the config sets beside the two packages' settings."""
    made = {name: text_of(value) for name, value in (launch.parts.environment or {}).items()}
    if len(launch.site.hosts) > 1:
        # Which of a host's addresses vLLM's ranks find each other at.
        made.setdefault("VLLM_HOST_IP", launch.site.hosts[rank])
    return made


def _command(launch: Launch, rank: int) -> Iterator[str]:
    site, count = launch.site, len(launch.site.hosts)
    for word in site.command:
        yield word.replace("{target}", site.target or "")
    if launch.parts.speculative is not None:
        yield from ("--speculative-config", json.dumps({**launch.parts.speculative, "model": site.drafter}))
    if site.tensor_parallel_size > 1:
        yield from ("--tensor-parallel-size", str(site.tensor_parallel_size))
    if count > 1:
        yield from ("--distributed-executor-backend", "mp", "--nnodes", str(count), "--node-rank", str(rank))
        yield from ("--master-addr", site.hosts[0], "--master-port", str(site.master_port))
    for name, value in (launch.parts.engine or {}).items():
        yield from options(name, value)
    if rank:
        yield "--headless"
    else:
        yield from ("--host", site.host, "--port", str(site.port))
