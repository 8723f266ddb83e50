"""Far ends of staging, behind a stand-in for ssh which runs what it is given in another folder."""

import shutil
from pathlib import Path

from spark_overlay.delivery.transport import RemoteShell

SSH = """#!/bin/sh
# HOST COMMAND, as ssh is called; a far end is a folder, its programs before this host's.
[ $# -eq 2 ] || { echo "ssh got $# arguments" >&2; exit 99; }
cd "${FARS:?}/$1" 2>/dev/null || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
if [ -f before ]; then . ./before; fi
PATH=$PWD/bin:$PATH exec sh -c "$2"
"""


class Fars:
    """Hosts by name, each a folder; `shell` reaches them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ssh = folder / "ssh"
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)
        self.rsh = [str(self.ssh)]

    def add(self, name: str) -> Path:
        """A host; its folder."""
        (self.folder / name / "bin").mkdir(parents=True)
        return self.folder / name

    def program(self, host: str, name: str, body: str) -> None:
        """A program of a host's in place of the real one, which `$REAL` names in it."""
        path = self.folder / host / "bin" / name
        path.write_text(f"#!/bin/sh\nREAL={shutil.which(name)}\n{body}\n")
        path.chmod(0o755)

    def shell(self, timeout_s: float = 60.0) -> RemoteShell:
        return RemoteShell(self.rsh, timeout_s)
