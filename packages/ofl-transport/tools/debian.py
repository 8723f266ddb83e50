"""What a check needs of Debian's packages: there, installed by root, or a sentence that says what to install."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

INSTALL_SECONDS = 900


def missing(needs: Mapping[str, str]) -> dict[str, str]:
    """Of what is needed (a command, or a path that begins with a slash -> its package), what is not here."""
    return {
        what: package
        for what, package in needs.items()
        if not (Path(what).exists() if what.startswith("/") else shutil.which(what))
    }


def provide(needs: Mapping[str, str]) -> str:
    """Have everything that is needed, installing it where this is root on Debian; returns why not, or ""."""
    absent = missing(needs)
    if not absent:
        return ""
    packages = sorted(set(absent.values()))
    wish = f"{' and '.join(sorted(absent))} missing; as root: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return wish
    print(f"installing {' '.join(packages)}", flush=True)
    options = ["-qq", "-o", "DPkg::Lock::Timeout=300"]
    install = ["install", "-y", "--no-install-recommends", *packages]
    for words in (["update"], install):
        try:
            done = subprocess.run(
                ["apt-get", *options, *words],
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{wish} (apt-get {words[0]} took longer than {INSTALL_SECONDS} s)"
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return f"{wish} (apt-get {words[0]} failed: {last})"
    return wish if missing(needs) else ""
