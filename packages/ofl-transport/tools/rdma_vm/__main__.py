"""The command line: `python packages/ofl-transport/tools/rdma_vm kit | suite | exec`."""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rdma_vm.junit import report_skipped
from rdma_vm.kit import Kit, ensure_kit
from rdma_vm.prerequisites import UnavailableError
from rdma_vm.stage import ROOT
from rdma_vm.suite import FOLDERS, run_suite
from rdma_vm.vm import Vm, VmError

BASE = ROOT / ".nox" / "rdma-vm"
SITE = BASE / "site"
UNAVAILABLE = 3
"""Exit status where this machine cannot boot the VM, or what the tests need is not there."""


def main(words: list[str]) -> int:
    """Run one of the commands and return its exit status."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    options, arguments = _parser().parse_known_args(words)
    try:
        kit = _kit()
    except UnavailableError as error:
        return _unavailable(str(error), options)
    try:
        if options.command == "suite":
            if missing := [path for path in (SITE, *options.libraries) if not path.exists()]:
                print(
                    f"rdma: {missing[0]} is not there (`nox -s rdma` makes what is missing)", file=sys.stderr
                )
                return UNAVAILABLE
            smoke = ["-m", "smoke"] if options.smoke else []
            return run_suite(
                kit, BASE, options.libraries, SITE, [*smoke, *arguments], Path(options.junit_xml).resolve()
            )
        if options.command == "exec":
            return _exec(kit, options.shell_command, options.timeout_s)
    except (VmError, subprocess.CalledProcessError) as error:
        print(f"rdma: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rdma_vm", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    kit = commands.add_parser("kit", help="get together what the VM needs, once", allow_abbrev=False)
    kit.add_argument(
        "--junit-xml", help="where to report all tests as skipped, instead of failing, if it cannot be"
    )
    suite = commands.add_parser(
        "suite", help="run the RDMA suite; more arguments are pytest's", allow_abbrev=False
    )
    suite.add_argument(
        "--library",
        dest="libraries",
        action="append",
        type=Path,
        required=True,
        help="the libofl.so to test, and for tests of the tables the libengram.so",
    )
    suite.add_argument("--junit-xml", default=str(BASE / "rdma.xml"), help="where to report")
    suite.add_argument("--smoke", action="store_true", help="only the tests marked smoke")
    one = commands.add_parser("exec", help="boot one VM and run one bash command in it", allow_abbrev=False)
    one.add_argument("shell_command", metavar="COMMAND")
    one.add_argument("--timeout-s", type=float, default=300.0)
    return parser


def _kit() -> Kit:
    begun = time.monotonic()
    kit, what = ensure_kit(BASE)
    print(f"rdma: the VM's kit, Linux {kit.release}: {what} ({time.monotonic() - begun:.1f} s)", flush=True)
    return kit


def _unavailable(reason: str, options: argparse.Namespace) -> int:
    if options.command == "kit" and options.junit_xml:
        count = report_skipped(ROOT, FOLDERS, reason, Path(options.junit_xml))
        print(f"rdma: {count} tests skipped: {reason}")
        return 0
    print(f"rdma: {reason}", file=sys.stderr)
    return UNAVAILABLE


def _exec(kit: Kit, command: str, timeout_s: float) -> int:
    with tempfile.TemporaryDirectory(prefix="rdma-vm-shared-") as shared, Vm(kit, Path(shared)) as vm:
        ended = vm.run(command, timeout_s)
        sys.stdout.write(ended.stdout)
        sys.stderr.write(ended.stderr)
        return ended.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
