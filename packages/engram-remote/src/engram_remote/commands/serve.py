"""`engram-remote serve`: tables in memory, over every wire at once."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click
from ofl.contract.engram_v1.layout import BATCH_ROWS_MAX, RANKS_MAX
from ofl.keys import KeyFileError, check_key

from engram_remote.commands.bars import progress_bar
from engram_remote.problem import Problem, problems_as_sentences
from engram_remote.server.life import LOGGER, ServeOptions, serve
from engram_remote.server.load import Progress
from engram_remote.server.service import ServerLimits
from engram_remote.tables.verify import default_threads

_LIMITS = ServerLimits()
GATHER_THREADS_MAX = 8
"""Of the default: more cores gather no faster than memory answers."""


def _usable_key(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Told at once, before tables are read."""
    if path is not None:
        try:
            check_key(path)
        except KeyFileError as error:
            raise Problem(f"--key-file: {error}") from error
    return path


# fmt: off
_OPTIONS = (
    click.option("--listen", "endpoints", multiple=True, required=True, metavar="ENDPOINT",
                  help="Where to listen: tcp://address:port, rdma://address:port or shm://name.  Repeatable.  "
                  "Port 0 takes a free one."),
    click.option("--rank", "ranks", multiple=True, type=click.IntRange(0, RANKS_MAX - 1),
                  help="Serve only this rank's shards.  Repeatable.  [default: all]"),
    click.option("--any-address", is_flag=True, help="Allow listening on a wildcard address (0.0.0.0)."),
    click.option("--key-file", type=click.Path(path_type=Path), metavar="FILE", callback=_usable_key,
                  help="Both sides must prove that they hold this key (see `ofl keygen`).  "
                  "[default: nobody proves anything]"),
    click.option("--allow", "allowed", multiple=True, metavar="ADDRESS_OR_PREFIX",
                  help="Clients over tcp and rdma must come from there, e.g. 10.0.0.0/24.  Repeatable.  "
                  "[default: from anywhere]"),
    click.option("--gather-threads", type=click.IntRange(1, 1024),
                  help="Threads that gather large lookups.  "
                  f"[default: one for each core but one, 1 to {GATHER_THREADS_MAX}]"),
    click.option("--load-threads", type=click.IntRange(1, 1024),
                  help="Threads that read and digest.  [default: one for each core]"),
    click.option("--full", is_flag=True,
                  help="Digest every shard, also where it is recorded that this file was digested and is unchanged."),
    click.option("--huge-pages", "huge", is_flag=True, help="Explicit huge pages (vm.nr_hugepages), or fail."),
    click.option("--batch-rows", type=click.IntRange(1, BATCH_ROWS_MAX), default=_LIMITS.batch_rows_max,
                  show_default=True, help="Most rows of one lookup, over its layers."),
    click.option("--max-connections", type=click.IntRange(1, 65536), default=_LIMITS.connections_max,
                  show_default=True, help="Connections at once."),
    click.option("--max-lookups", type=click.IntRange(1, 255), default=_LIMITS.calls_max, show_default=True,
                  help="Unanswered lookups of one connection."),
    click.option("--reply-buffers", type=click.IntRange(1, 65536), default=_LIMITS.reply_buffers, show_default=True,
                  help="Registered buffers of one batch each, shared by all connections."),
    click.option("--spin-us", type=click.IntRange(0, 1_000_000), default=_LIMITS.spin_ns // 1000, show_default=True,
                  help="How long threads look for work before they sleep."),
    click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there."),
    click.option("--ready-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                  help="Written once all tables are verified and everything listens; removed at the end."),
    click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info",
                  show_default=True),
)
# fmt: on
Command = TypeVar("Command", bound=Callable[..., None])


def _options(function: Command) -> Command:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("serve", short_help="Serve a folder of shards from memory.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_options
def command(
    folder: Path,
    endpoints: tuple[str, ...],
    ranks: tuple[int, ...],
    any_address: bool,
    key_file: Path | None,
    allowed: tuple[str, ...],
    gather_threads: int | None,
    load_threads: int | None,
    full: bool,
    huge: bool,
    batch_rows: int,
    max_connections: int,
    max_lookups: int,
    reply_buffers: int,
    spin_us: int,
    metrics: str | None,
    ready_file: Path | None,
    log_level: str,
) -> None:
    """Load every shard into memory, verify it, then serve rows until SIGTERM or SIGINT.

    Nothing listens before every table is what the manifest says.  Exits with 0 after a stop, with 2 and one
    sentence where a port is in use, memory is too small, or a shard or the manifest is not what it should be.
    """
    _configure_log(log_level)
    limits = ServerLimits(
        gather_threads=gather_threads or default_gather_threads(),
        connections_max=max_connections,
        batch_rows_max=batch_rows,
        calls_max=max_lookups,
        reply_buffers=reply_buffers,
        spin_ns=spin_us * 1000,
    )
    options = ServeOptions(
        folder=folder,
        endpoints=endpoints,
        threads=load_threads or default_threads(),
        ranks=ranks,
        limits=limits,
        key_file=key_file,
        allowed=allowed,
        any_address=any_address,
        huge=huge,
        full=full,
        metrics=metrics,
        ready_file=ready_file,
    )
    with problems_as_sentences():
        serve(options, _progress)


@contextmanager
def _progress(total: int) -> Iterator[Progress]:
    with progress_bar() as bar:
        yield lambda done: bar.step("load", done, total)


def default_gather_threads() -> int:
    """One for each core that this process may use but the receiver's, 1 to GATHER_THREADS_MAX."""
    return max(1, min(len(os.sched_getaffinity(0)) - 1, GATHER_THREADS_MAX))


def _configure_log(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False
