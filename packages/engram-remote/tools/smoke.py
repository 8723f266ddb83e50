"""Try an installed engram-remote: tables are built, verified, served by another process, and every row is checked.

    python tools/smoke.py [--without FEATURE] BIN

BIN: the folder with the installed programs.  --without: the installed library must say that it lacks this, and why.
Standard library only; no file of this repository is used by what is tried.  Exit status 0 if all of it held.
"""

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ofl-transport" / "tools"))

from installed import Installed, SmokeError

ROWS = 20_000


class Tables(Installed):
    """The installed command, and a folder of synthetic tables."""

    def __init__(self, programs: Path, folder: Path) -> None:
        super().__init__(programs, "engram-remote", folder)
        self._ready, self._found, self._tables = (
            folder / "ready.json",
            folder / "check.json",
            str(folder / "tables"),
        )

    def probe(self, without: Sequence[str]) -> str:
        """Every feature named in `without` is missing, with a reason; the features that there are."""
        features: dict[str, Any] = json.loads(self.run("probe", "--json"))["features"]
        for name in without:
            if features[name]["there"] or not features[name]["said"]:
                raise SmokeError(f"probe says of {name}: {features[name]}")
        return ", ".join(name for name, feature in features.items() if feature["there"])

    def build(self) -> None:
        """Two layers for two ranks, verified."""
        self.run("build", "--synthetic", "--rows", "5000", "--ranks", "2", self._tables)
        self.run("verify", self._tables)

    def serve_and_check(self) -> dict[str, Any]:
        """Start a server, check every row over TCP, shared memory and from disk, stop it; what `check` found."""
        words = ["serve", self._tables, "--ready-file", str(self._ready), "--batch-rows", "65536"]
        words += ["--listen", "tcp://127.0.0.1:0", "--listen", f"shm://engram-smoke-{secrets.token_hex(6)}"]
        with self.serving(*words) as server:
            assert server.stderr is not None
            log = []
            for line in server.stderr:  # ends with the process at the latest
                log.append(line)
                if "INFO identity " in line:
                    break
            else:
                raise SmokeError(f"engram-remote serve ended: {''.join(log)}")
            endpoints = json.loads(self._ready.read_text())["endpoints"]
            each = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
            self.run("check", self._tables, *each, "--rows", str(ROWS), "--json", str(self._found))
        checked: dict[str, Any] = json.loads(self._found.read_text())
        if checked["rows_wrong"] or checked["rows_checked"] < ROWS * (len(endpoints) + 1):
            raise SmokeError(f"{checked['rows_checked']} rows checked, {checked['rows_wrong']} wrong")
        return checked


def main() -> int:
    """Try it, and say what held or did not."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    options.add_argument("--without", action="append", default=[], metavar="FEATURE")
    options.add_argument("programs", type=Path, metavar="BIN")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="engram-smoke-") as folder:
        tables = Tables(chosen.programs, Path(folder))
        try:
            print(f"smoke: this library has {tables.probe(chosen.without)}", flush=True)
            tables.build()
            checked = tables.serve_and_check()
        except (SmokeError, subprocess.TimeoutExpired) as error:
            print(f"smoke: {error}", file=sys.stderr)
            return 1
    print(f"smoke: {checked['rows_checked']:,} rows checked, {checked['rows_wrong']} wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
