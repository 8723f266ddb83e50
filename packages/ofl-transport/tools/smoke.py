"""Try an installed ofl-transport: what its probe says of RDMA, and a round trip over TCP and over shared memory.

    python tools/smoke.py [--rdma built-in|absent] BIN

BIN: the folder with the installed programs.  --rdma: the installed library must have been built with it, or without it
and say so.  Standard library only; no file of this repository is used by what is tried.  Exit status 0 if all of it
held.
"""

import argparse
import json
import secrets
import subprocess
import sys
from pathlib import Path

from installed import Installed, SmokeError

ABSENT = "this build has no RDMA: "


class Transport(Installed):
    """The installed command."""

    def probe(self, wanted: str | None) -> str:
        """Whether RDMA was built in, which may say that this host has none, in probe's words.  Raises SmokeError."""
        rdma = json.loads(self.run("probe", "--json"))["features"]["rdma"]
        built = "absent" if rdma["missing"].startswith(ABSENT) else "built-in"
        lines = [line for line in self.run("probe").splitlines() if line.startswith("rdma: ")]
        if len(lines) != 1 or (built == "absent" and lines[0] != f"rdma: no: {rdma['missing']}"):
            raise SmokeError(f"probe says {lines}, and as JSON {rdma}")
        if wanted not in (None, built):
            raise SmokeError(f"RDMA is to be {wanted} and probe says {lines[0]!r}")
        return lines[0] if built == "absent" else "rdma: built in"

    def call(self, endpoint: str) -> None:
        """A server of its own process, calls to it, and its end when it is told to.  Raises SmokeError."""
        with self.serving("echo", "serve", endpoint) as server:
            assert server.stdout is not None
            listening = server.stdout.readline().split()  # empty once the process has ended
            if not listening:
                raise SmokeError(f"ofl echo serve {endpoint} ended: {server.communicate()[1]}")
            self.run("echo", "ping", listening[-1], "--count", "10", "--size", "75000")


def main() -> int:
    """Try it, and say what held or did not."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    options.add_argument("--rdma", choices=("built-in", "absent"))
    options.add_argument("programs", type=Path, metavar="BIN")
    chosen = options.parse_args()
    transport = Transport(chosen.programs, "ofl")
    try:
        print(f"smoke: {transport.probe(chosen.rdma)}", flush=True)
        for endpoint in ("tcp://127.0.0.1:0", f"shm://ofl-smoke-{secrets.token_hex(6)}"):
            transport.call(endpoint)
    except (SmokeError, subprocess.TimeoutExpired) as error:
        print(f"smoke: {error}", file=sys.stderr)
        return 1
    print("smoke: calls over TCP and shared memory were answered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
