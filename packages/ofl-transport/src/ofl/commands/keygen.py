"""`ofl keygen FILE`."""

import argparse

from ofl import keys


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    parser = commands.add_parser("keygen", help="make a key that both ends of a connection must hold")
    parser.add_argument("file", metavar="FILE", help="made with mode 0600; it must not exist yet")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    keys.write_key(options.file)
    print(f"ofl keygen: wrote {options.file}; copy it to the other end, and let nobody else read it")
    return 0
