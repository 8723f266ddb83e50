"""The `engram-remote` command: says that nothing is built yet, and exits 2 when asked to do anything."""

import argparse
import sys


def main(argv: list[str] | None = None) -> int:
    """Print help for `--help`; refuse everything else with exit status 2."""
    parser = argparse.ArgumentParser(prog="engram-remote", description="The Engram tables: not built yet.")
    parser.parse_args(argv)
    print("engram-remote: not built yet; this distribution only reserves the name.", file=sys.stderr)
    return 2
