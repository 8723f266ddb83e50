"""The command line of the worker: `serve`, `mock`, `identity`, `status`, `unit`, `doctor`.

Owns options and messages.  Whatever an operator can get wrong is one sentence and exit status 2.
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from ofl.contract.dspark_v1 import layout
from ofl.contract.identity import UNSTATED, parse_digest
from ofl.files import publish
from ofl.keys import KeyFileError, check_key
from rich.console import Console

from x86_worker import __version__, status
from x86_worker.checkpoint import read_drafter_config, read_identity
from x86_worker.doctor.command import doctor
from x86_worker.drafters.base import Drafter
from x86_worker.life import ServiceOptions, serve_drafter
from x86_worker.mock import MockDrafter, MockShape
from x86_worker.problem import Problem, problems_as_sentences
from x86_worker.session import Limits
from x86_worker.unit import unit, write_unit

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


class FiniteRange(click.FloatRange):
    """A float range that NaN does not slip through, as it does through click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


Command = TypeVar("Command", bound=Callable[..., None])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="x86-worker")
def main() -> None:
    """The drafter of Spark Offload: makes draft tokens for vLLM engines on other hosts."""


def _usable_key(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Told at once, also where nobody listens or weights would be read first."""
    if path is not None:
        try:
            check_key(path)
        except KeyFileError as error:
            raise Problem(f"--key-file: {error}") from error
    return path


_KEY_FILE_OPTION = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_usable_key,
    help="Both sides must prove that they hold this key (see `ofl keygen`).  [default: nobody proves anything]",
)
# fmt: off
_SHARED = (
    click.option("--listen", "endpoints", multiple=True, required=True, metavar="ENDPOINT",
                 help="Where to listen: tcp://address:port, rdma://address:port or shm://name.  Repeatable.  "
                 "Port 0 takes a free one."),
    click.option("--any-address", is_flag=True, help="Allow listening on a wildcard address (0.0.0.0)."),
    _KEY_FILE_OPTION,
    click.option("--allow", "allowed", multiple=True, metavar="ADDRESS_OR_PREFIX",
                 help="Clients over tcp and rdma must come from there, e.g. 10.0.0.0/24.  Repeatable.  "
                 "[default: from anywhere]"),
    click.option("--name", default="x86-worker", show_default=True, help="What HELLO calls this worker."),
    click.option("--max-sessions", type=click.IntRange(1, 1024), default=Limits.max_sessions,
                 show_default=True, help="Engines (and probes) at once."),
    click.option("--max-slots", type=click.IntRange(1, layout.SLOTS_MAX), default=Limits.max_slots,
                 show_default=True, help="Request slots that one engine may ask for."),
    click.option("--max-frame-mib", type=click.IntRange(1, layout.FRAME_BYTES_MAX >> 20),
                 default=Limits.max_frame_bytes >> 20, show_default=True, help="Longest message, in MiB."),
    click.option("--context-memory-mib", type=click.IntRange(1), default=Limits.context_bytes_max >> 20,
                 show_default=True, help="Memory for the contexts of all engines at their longest, in MiB."),
    click.option("--ready-file", type=_FILE, help="Write pid, endpoints and identity here once it listens."),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
                 show_default=True, help="What the log on stderr shows."),
)
# fmt: on


def shared_options(command: Command) -> Command:
    """Adds the options that `serve` and `mock` have in common."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


def _service_options(
    *, max_sessions: int, max_slots: int, max_frame_mib: int, context_memory_mib: int, **rest: Any
) -> ServiceOptions:
    limits = Limits(max_sessions, max_slots, max_frame_mib << 20, context_memory_mib << 20)
    return ServiceOptions(limits=limits, **rest)


@main.command()
@click.option("--drafter", type=_FOLDER, required=True, help="The drafter's folder, as vLLM loads it.")
@click.option("--target", type=_FOLDER, help="The target's folder.  [default: the drafter's]")
@click.option("--device", default="cpu", show_default=True, help="Where to compute: cpu, cuda or cuda:N.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), help="[default: the checkpoint's]")
@click.option(
    "--block-length", type=click.IntRange(1, layout.BLOCK_LENGTH_MAX), help="[default: the checkpoint's]"
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Threads to compute with on a CPU; more help large drafters, on cores that nothing else uses.",
)
@shared_options
def serve(
    drafter: Path,
    target: Path | None,
    device: str,
    dtype: str | None,
    block_length: int | None,
    threads: int,
    **shared: Any,
) -> None:
    """Serve a real drafter until SIGTERM or SIGINT."""

    def load() -> Drafter:
        reference = _reference()
        _check_device(device)
        _use_threads(threads)
        loaded: Drafter = reference.load_reference_drafter(
            drafter, target or drafter, dtype=dtype, device=device, block_length=block_length
        )
        return loaded

    with problems_as_sentences():
        serve_drafter(_service_options(**shared), load)


@main.command()
@click.option("--like", type=_FOLDER, help="Take the shape from the config.json of a drafter's folder.")
@click.option("--vocabulary", type=click.IntRange(2, 1 << 31), help="Token ids are 0 .. vocabulary-1.")
@click.option("--hidden-size", type=click.IntRange(1, 1 << 20), help="Elements of one tap.")
@click.option("--taps", type=click.IntRange(1, layout.TAPS_MAX), help="Target layers tapped for a row.")
@click.option(
    "--block-length", type=click.IntRange(1, layout.BLOCK_LENGTH_MAX), help="Draft positions of a block."
)
@click.option(
    "--window", type=click.IntRange(0, 1 << 31), help="Context rows attended to; 0: all.  [default: 0]"
)
@click.option("--max-positions", type=click.IntRange(1, 1 << 31), help="Longest sequence.  [default: 32768]")
@click.option("--identity", metavar="HEX", help="State this identity.  [default: made from the shape]")
@click.option("--markov-identity", metavar="HEX", help="State this Markov identity.  [default: as above]")
@click.option("--target-binding", metavar="HEX", help="State this target binding.  [default: none]")
@click.option("--draft-ms", type=FiniteRange(0, 60_000), default=0.0, help="How long a round takes.")
@click.option("--unsafe-any-policy", is_flag=True, help="Serve fake drafts to engines that would use them.")
@shared_options
def mock(
    like: Path | None,
    vocabulary: int | None,
    hidden_size: int | None,
    taps: int | None,
    block_length: int | None,
    window: int | None,
    max_positions: int | None,
    identity: str | None,
    markov_identity: str | None,
    target_binding: str | None,
    draft_ms: float,
    unsafe_any_policy: bool,
    **shared: Any,
) -> None:
    """Serve fake drafts, to try the plumbing: shadow and probe only, unless told otherwise."""
    with problems_as_sentences():
        given = {
            "vocabulary": vocabulary,
            "hidden_size": hidden_size,
            "taps": taps,
            "block_length": block_length,
            "window": window,
            "max_positions": max_positions,
        }
        sizes = _mock_sizes(like, {name: value for name, value in given.items() if value is not None})
        shape = MockShape(
            vocabulary=sizes["vocabulary"],
            row_elements=sizes["hidden_size"] * sizes["taps"],
            projected_elements=sizes["hidden_size"],
            tap_count=sizes["taps"],
            block_length=sizes["block_length"],
            window=sizes["window"],
            max_positions=sizes["max_positions"],
            identity=_digest(identity, "--identity"),
            markov_identity=_digest(markov_identity, "--markov-identity"),
            target_binding=_digest(target_binding, "--target-binding") or UNSTATED,
        )
        options = _service_options(any_policy=unsafe_any_policy, **shared)
        serve_drafter(options, lambda: MockDrafter(shape, draft_ms))


@main.command()
@click.option("--drafter", type=_FOLDER, required=True, help="The drafter's folder, as vLLM loads it.")
@click.option("--target", type=_FOLDER, help="The target's folder.  [default: the drafter's]")
@click.option("--output", type=_FILE, help="Write JSON here instead of to standard output.")
def identity(drafter: Path, target: Path | None, output: Path | None) -> None:
    """Digest a drafter: what engines are configured with, and what HELLO compares."""
    with problems_as_sentences():
        text = json.dumps(read_identity(drafter, target or drafter).to_json(), indent=2)
        if output is None:
            click.echo(text)
        else:
            publish(output, (text + "\n").encode(), synced=True)


@main.command("status")
@click.argument("endpoint")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--timeout-s", type=FiniteRange(0.001, 3600), default=5.0, show_default=True)
@_KEY_FILE_OPTION
def status_command(endpoint: str, as_json: bool, timeout_s: float, key_file: Path | None) -> None:
    """Ask a running worker for its sessions and counters; disturbs no engine."""
    with problems_as_sentences():
        answer = status.ask(endpoint, timeout_s, key_file)
    if as_json:
        click.echo(json.dumps(asdict(answer), indent=2))
    else:
        status.show(answer, Console())


@main.command("unit")
@click.option(
    "--output", type=_FOLDER, help="Write x86-worker.service into this folder, /etc/systemd/system say."
)
def unit_command(output: Path | None) -> None:
    """Print the systemd unit that serves a drafter from the start of the host."""
    with problems_as_sentences():
        if output is None:
            click.echo(unit(Path(sys.prefix)), nl=False)
        else:
            try:
                path = write_unit(output)
            except OSError as error:
                raise Problem(f"--output: {output} cannot be written to: {error.strerror}") from error
            click.echo(
                f"{path}: set /etc/default/x86-worker as it says, then `systemctl daemon-reload`", err=True
            )


main.add_command(doctor)


def _mock_sizes(like: Path | None, given: dict[str, int]) -> dict[str, int]:
    """Sizes from a drafter's config.json, overridden by options.  Raises Problem naming what is missing."""
    sizes = {"window": 0, "max_positions": 32768}
    if like is not None:
        config = read_drafter_config(like)
        sizes = {
            "vocabulary": config.vocab_size,
            "hidden_size": config.target_hidden_size,
            "taps": len(config.target_layer_ids),
            "block_length": config.block_length,
            "window": config.window,
            "max_positions": config.max_position_embeddings,
        }
    sizes |= given
    missing = [name for name in ("vocabulary", "hidden_size", "taps", "block_length") if name not in sizes]
    if missing:
        options = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise Problem(f"{options}: needed unless --like names a drafter's folder")
    return sizes


def _digest(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    try:
        return parse_digest(text, option)
    except ValueError as error:
        raise Problem(str(error)) from error


def _reference() -> Any:
    """The torch drafter's module; torch is an extra, so its absence is an operator's matter."""
    try:
        from x86_worker.drafters import reference
    except ModuleNotFoundError as error:
        raise Problem(
            f"{error.name} is not installed: `pip install x86-worker[torch]` brings what serving needs"
        ) from error
    return reference


def _use_threads(count: int) -> None:
    """One unless told otherwise: torch would take every core, and a block is too small to share among cores that
    others use too (beside one busy process on two cores, 272 ms a block instead of 12).
    """
    import torch

    torch.set_num_threads(count)


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    except Exception as error:
        # torch raises RuntimeError, AssertionError or its own kinds here, by version and build.
        first_line = str(error).splitlines()[0]
        raise Problem(f"--device {device!r} cannot be used: {first_line}") from error
