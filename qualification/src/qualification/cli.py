"""The `qualify` command: says that nothing is built yet, and exits 2 when asked to do anything."""

import argparse
import sys


def main(argv: list[str] | None = None) -> int:
    """Print help for `--help`; refuse everything else with exit status 2."""
    parser = argparse.ArgumentParser(prog="qualify", description="The qualification harness: not built yet.")
    parser.parse_args(argv)
    print("qualify: not built yet; this distribution only reserves the name.", file=sys.stderr)
    return 2
