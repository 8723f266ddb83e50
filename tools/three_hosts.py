"""Three network namespaces that stand for the hosts of a small cluster: `three_hosts.py up|down|exec|shell`.

Owns the namespaces spark-a, spark-b and x86, their direct links, and a folder for each.  A host is a process that
is number 1 of a process namespace: once it is killed, nothing that ran there is left.  Must never touch an interface,
a mount or a process outside of them.  Standard library, iproute2, util-linux and sshd; Linux, as root.

Each host sees its own /run, /dev/shm, /srv, hostname, processes, home and /etc (an overlay: what is written there stays
its own).  Root can reach each by ssh from the others.  Everything else is the machine's: a trial ground, not a wall.
"""

import argparse
import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".nox" / "hosts"
FIRST_PROCESS = ROOT / "tools" / "trial_host.py"
"""What each host begins with."""
HOSTS = ("spark-a", "spark-b", "x86")
LINKS = {
    "link-xa": (("x86", "10.202.28.1"), ("spark-a", "10.202.28.2")),
    "link-xb": (("x86", "10.202.29.1"), ("spark-b", "10.202.29.2")),
    "link-ab": (("spark-a", "10.202.30.1"), ("spark-b", "10.202.30.2")),
}
"""Two ends each, of a network of 24 bits, by the name of the interface at both."""
MTU = 9000
COMMAND_S = 20.0
"""A command of iproute2, and a host's start or end."""
PATH = "/srv/ofl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEEDED = ("ip", "unshare", "nsenter", "mount", "sshd", "ssh-keygen")
READY = "host is up"
LOCK = "/run/three-hosts.lock"
"""Held by whoever made the hosts as a context manager: their names are the machine's."""


class HostsError(Exception):
    """The hosts cannot be made or reached; one sentence."""


@dataclass
class ThreeHosts:
    """The three hosts.  As a context manager they are made on the way in and removed on the way out.

    folder: what each host keeps, in a folder of its name.  binds: what every host sees read-only of the machine, by
    the path it has there.  mtu: of the links, in bytes.  fresh: what the hosts kept is removed first.
    """

    folder: Path = FOLDER
    binds: Mapping[str, Path] = field(default_factory=dict)
    mtu: int = MTU
    fresh: bool = False
    _lock: int = field(default=-1, init=False)

    def __enter__(self) -> "ThreeHosts":
        check_possible()
        self._lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.up()
        except BlockingIOError:
            os.close(self._lock)
            raise HostsError("another run holds the hosts of this machine.") from None
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        os.close(self._lock)

    def up(self) -> None:
        """Make the hosts anew: those that were there before are removed, their folders stay.

        Raises HostsError, after removing what was made.
        """
        check_possible()
        self.down()
        try:
            _make_key(self.folder / "ssh")
            for host in HOSTS:
                _ip("netns", "add", host)
            for name, ends in LINKS.items():
                self._link(name, *ends)
            for host in HOSTS:
                _ip("-n", host, "link", "set", "lo", "up")
                self._start(host)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End what runs on the hosts and remove them; well where there are none.  Folders stay."""
        check_possible()
        there = namespaces()
        for host in HOSTS:
            if host in there:
                _end_all(host)
                _ip("netns", "del", host)

    def command(self, host: str, words: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        """What runs words on the host, in its home.  env: added to the small environment of a login there.

        Raises HostsError where the host is not up.
        """
        first = first_process(host)
        if first is None:
            raise HostsError(f"{host} is not up: `three_hosts.py up` makes the hosts.")
        home = str(self.home(host))
        given = {"HOME": home, "PATH": PATH, "LANG": "C.UTF-8", "USER": "root", "SHELL": "/bin/bash"}
        assigned = [f"{name}={value}" for name, value in {**given, **(env or {})}.items()]
        enter = [
            "nsenter",
            f"--target={first}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            f"--wdns={home}",
        ]
        return [*enter, "--", "env", "-i", *assigned, *words]

    def home(self, host: str) -> Path:
        """The host's home, the same path on the machine and on the host."""
        return self.folder / host / "home"

    def _link(self, name: str, one: tuple[str, str], other: tuple[str, str]) -> None:
        (host, address), (peer, peer_address) = one, other
        size = ("mtu", str(self.mtu))
        _ip(
            "-n", host, "link", "add", name, *size, "type", "veth", "peer", "name", name, *size, "netns", peer
        )
        for where, own in ((host, address), (peer, peer_address)):
            _ip("-n", where, "address", "add", f"{own}/24", "dev", name)
            _ip("-n", where, "link", "set", name, "up")

    def _start(self, host: str) -> None:
        if self.fresh:
            shutil.rmtree(self.folder / host, ignore_errors=True)
        for name in ("home", "srv"):
            (self.folder / host / name).mkdir(parents=True, exist_ok=True)
        binds = [f"{path}={inside}" for inside, path in self.binds.items()]
        start = ["ip", "netns", "exec", host, "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork"]
        start += [
            "--kill-child",
            "--mount-proc",
            sys.executable,
            "-E",
            "-S",
            str(FIRST_PROCESS),
            host,
            str(self.folder),
            *binds,
        ]
        child = subprocess.Popen(
            start,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        assert child.stdout is not None
        with child.stdout:
            # Every command of a starting host is bounded, so its first line or its end comes.
            said = child.stdout.readline().strip()
        if said != READY:
            raise HostsError(f"{host} did not come up: {said or 'it said nothing'}")


def check_possible() -> None:
    """Raises HostsError where this machine or user can make no hosts."""
    missing = [name for name in NEEDED if shutil.which(name, path=PATH) is None]
    if missing:
        raise HostsError(
            f"the hosts need {' and '.join(missing)} (iproute2, util-linux, openssh-server), which this machine lacks."
        )
    if os.geteuid() != 0:
        raise HostsError("the hosts are network namespaces: making them needs root.")
    tried = run_bounded(["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"])
    if tried.returncode:
        raise HostsError(f"this machine allows no namespaces: {tried.stderr.strip()}")


def namespaces() -> set[str]:
    """The names of the network namespaces there are."""
    return {line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()}


def first_process(host: str) -> int | None:
    """The machine's number of the process that is number 1 on the host; None where it is not up."""
    if host not in namespaces():
        return None
    for pid in _processes(host):
        with contextlib.suppress(OSError):
            for line in Path("/proc", str(pid), "status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[2:] == ["1"]:
                    return pid
    return None


def _processes(host: str) -> list[int]:
    return [int(word) for word in _ip("netns", "pids", host).split()]


def _end_all(host: str) -> None:
    """Kill what runs in the host's network: its first process takes the others with it."""
    deadline = time.monotonic() + COMMAND_S
    while left := _processes(host):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise HostsError(f"processes of {host} do not end: {', '.join(map(str, left))}")
        _await_end(left[0], 1.0)


def _await_end(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        descriptor = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(seconds * 1000)
        finally:
            os.close(descriptor)


def _ip(*words: str) -> str:
    done = run_bounded(["ip", *words])
    if done.returncode:
        raise HostsError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def run_bounded(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.  Raises HostsError where it takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        raise HostsError(f"`{' '.join(command)}` did not end within {COMMAND_S:g} s.") from None


def _make_key(folder: Path) -> None:
    if not (folder / "key").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        made = run_bounded(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "trial", "-f", str(folder / "key")]
        )
        if made.returncode:
            raise HostsError(f"no key for ssh could be made: {made.stderr.strip()}")


# --- the command ---


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 2 where an option or the machine is wrong, else the status of what ran on the host."""
    options = _parser().parse_args(argv)
    try:
        hosts = ThreeHosts(options.folder.resolve(), dict(parse_binds(options.bind)), options.mtu)
        if options.do == "up":
            hosts.up()
            print("\n".join(_overview()))
        elif options.do == "down":
            hosts.down()
        else:
            words = options.words if options.do == "exec" else ["bash", "--norc"]
            return subprocess.run(hosts.command(options.host, words), check=False).returncode
    except HostsError as error:
        print(f"three_hosts: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="three_hosts.py", description=__doc__.split("\n\n")[0])
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--folder", type=Path, default=FOLDER, help="what the hosts keep (default: %(default)s)"
    )
    common.add_argument("--mtu", type=int, default=MTU, help="of the links (default: %(default)s)")
    where = "a folder of this machine that every host sees read-only at PATH"
    common.add_argument("--bind", action="append", default=[], metavar="FOLDER=PATH", help=where)
    todo = parser.add_subparsers(dest="do", required=True)
    todo.add_parser("up", parents=[common], help="make the hosts, anew where they are there")
    todo.add_parser("down", parents=[common], help="end and remove them")
    run = todo.add_parser("exec", parents=[common], help="run a command on a host: exec HOST -- COMMAND")
    run.add_argument("host", choices=HOSTS)
    run.add_argument("words", nargs="+", metavar="COMMAND")
    shell = todo.add_parser("shell", parents=[common], help="a shell on a host")
    shell.add_argument("host", choices=HOSTS)
    return parser


def parse_binds(given: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """(place on the hosts, folder of this machine) of each FOLDER=PATH.  Raises HostsError."""
    for one in given:
        path, _, inside = one.rpartition("=")
        if not path or not inside.startswith("/") or not Path(path).is_dir():
            raise HostsError(f"--bind {one!r} is not a folder of this machine, =, and an absolute path.")
        yield inside, Path(path).resolve()


def _overview() -> list[str]:
    return [f"{name}: {one[0]} {one[1]} - {other[1]} {other[0]}" for name, (one, other) in LINKS.items()]


if __name__ == "__main__":
    sys.exit(main())
