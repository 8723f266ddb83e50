"""The first process of a trial host, started by three_hosts.py: `trial_host.py HOST FOLDER [FOLDER=PATH ...]`.

Owns what the host sees of itself: mounts, name, addresses of the others, sshd.  It is number 1 of the host's process
namespace: it reaps what ends, and with its own end everything on the host ends.  Must never be run outside of
namespaces of its own.  Standard library.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from three_hosts import LINKS, PATH, READY, HostsError, run_bounded

SHM_SIZE = "1g"


def be_host(host: str, folder: Path, binds: Sequence[str]) -> int:
    """Lay out the host's mounts and name, say so, and reap what ends until killed."""
    own = folder / host
    try:
        if os.getpid() != 1:
            raise HostsError("this is no host: three_hosts.py starts it")
        for name, size in (("/run", "64m"), ("/dev/shm", SHM_SIZE)):
            _mount("-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", name)
        os.chmod("/dev/shm", 0o1777)
        _mount("--bind", str(own / "srv"), "/srv")
        layers = [Path("/run/.etc", name) for name in ("upper", "work")]
        for layer in layers:
            layer.mkdir(parents=True)
        _mount(
            "-t",
            "overlay",
            "-o",
            f"lowerdir=/etc,upperdir={layers[0]},workdir={layers[1]}",
            "overlay",
            "/etc",
        )
        for bind in binds:
            path, _, inside = bind.rpartition("=")
            Path(inside).mkdir(parents=True, exist_ok=True)
            _mount("--bind", path, inside)
            _mount("-o", "remount,bind,ro", inside)
        _serve_ssh(own)
        Path("/etc/hosts").write_text(hosts_file(host))
        Path("/etc/hostname").write_text(f"{host}\n")
        socket.sethostname(host)
    except (HostsError, OSError) as error:
        print(f"{error}", flush=True)
        return 1
    print(READY, flush=True)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):  # whoever made the host goes on without it
        os.dup2(quiet, descriptor)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _serve_ssh(own: Path) -> None:
    """Let root of one host reach the others: all have one key, which is the trial ground's own."""
    keys, home = own.parent / "ssh", own / "home"
    users = Path("/etc/passwd").read_text().splitlines()
    moved = [re.sub(r"^(root:(?:[^:]*:){4})[^:]*", rf"\g<1>{home}", line) for line in users]
    Path("/etc/passwd").write_text("\n".join([*moved, ""]))
    (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(keys / "key", home / ".ssh" / "id_ed25519")
    public = (keys / "key.pub").read_text()
    (home / ".ssh" / "authorized_keys").write_text(public)
    Path("/etc/ssh/ssh_known_hosts").write_text(f"* {public}")
    Path("/run/sshd").mkdir()
    options = [f"HostKey={keys / 'key'}", "StrictModes=no", f"SetEnv=PATH={PATH}", "PidFile=/run/sshd.pid"]
    words = [
        word
        for option in ("UsePAM=no", "PermitRootLogin=yes", "Subsystem=sftp internal-sftp", *options)
        for word in ("-o", option)
    ]
    done = run_bounded([str(shutil.which("sshd", path=PATH)), "-f", "/dev/null", *words])
    if done.returncode:
        raise HostsError(f"sshd did not start: {done.stderr.strip()}")


def hosts_file(host: str) -> str:
    """/etc/hosts of the host: the others by the address of the link to them, itself by its first one."""
    lines = ["127.0.0.1 localhost"]
    own = []
    for ends in LINKS.values():
        for (name, address), (peer, peer_address) in (ends, ends[::-1]):
            if name == host:
                own.append(address)
                lines.append(f"{peer_address} {peer}")
    return "\n".join([lines[0], f"{own[0]} {host}", *lines[1:], ""])


def _mount(*words: str) -> None:
    done = run_bounded(["mount", *words])
    if done.returncode:
        raise HostsError(f"`mount {' '.join(words)}` failed: {done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(be_host(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
