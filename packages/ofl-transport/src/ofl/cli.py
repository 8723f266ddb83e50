"""The `ofl` command.  Exit status: 0 worked, 1 failed, 2 used wrongly.  Errors are one sentence."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from ofl import __version__
from ofl.commands import bench, common, doctor, echo, keygen, probe
from ofl.errors import EndpointError, TransportError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(bench.with_default_command(given))
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        _flush()
        return status
    except (EndpointError, common.Misuse) as error:
        return _complain(str(error), common.MISUSED)
    except (TransportError, ImportError, ValueError) as error:
        return _complain(str(error), common.FAILED)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # whoever read our output has enough
        _drop_output()
        return common.FAILED
    except OSError as error:  # a full disk under our output, for one
        _drop_output()
        return _complain(f"the operating system refused: {error.strerror or error}", common.FAILED)


def _flush() -> None:
    if sys.stdout is not None:  # None: it was closed before we began
        sys.stdout.flush()


def _drop_output() -> None:
    """Where it cannot be written, nothing more may be, not even at exit."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(sentence: str, status: int) -> int:
    print(f"ofl: {sentence}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ofl", description="Spark Offload's transport: look and measure.")
    parser.add_argument("--version", action="version", version=f"ofl {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (probe, doctor, echo, bench, keygen):
        command.add(commands)
    return parser
