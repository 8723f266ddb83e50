"""What a check needs of Debian's packages: there, installed by root, unpacked, or a sentence that says what is not."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
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


def unpack(package_names: Sequence[str], architecture: str, folder: Path) -> str:
    """Have one of these packages of another architecture unpacked in a folder, installing nothing; why not, or "".

    Needs no root: apt keeps lists and downloads of its own there.  What was unpacked before is kept.
    """
    tree = folder / "tree"
    if tree.is_dir():
        return ""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "apt-get and dpkg-deb are missing: this is no Debian"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("lists/partial", "cache/archives/partial", "download"):
        (folder / name).mkdir(parents=True)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "",
        "Dir::State::Lists": str(folder / "lists"),
        "Dir::State::status": "/dev/null",
        "Dir::Cache": str(folder / "cache"),
    }
    apt = ["apt-get", "-qq", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
    if failure := _run([*apt, "update"], folder):
        return f"the package lists for {architecture} cannot be read ({failure})"
    for name in package_names:
        if not (failure := _run([*apt, "download", name], folder / "download")):
            break
    else:
        return f"{' or '.join(package_names)} for {architecture} cannot be downloaded ({failure})"
    [archive] = (folder / "download").glob("*.deb")
    # Unpacked beside its place and renamed into it: a tree is whole or not there.
    if failure := _run(["dpkg-deb", "-x", str(archive), str(folder / "part")], folder):
        return failure
    (folder / "part").rename(tree)
    return ""


def _run(words: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{words[0]} took longer than {INSTALL_SECONDS} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
