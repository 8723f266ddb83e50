"""One virtual machine: boot it, run commands in it, cut its wire, read what it leaves behind, end it.

Owns QEMU's process.  Everything is waited for by event and with a limit: the agent in the guest tells that it is ready
and how each job ended, and a QEMU that is gone ends every wait.  QEMU ends with this process, however this ends.  Must
never give up on a guest without saying what its console says.

The guest sees this machine's root file system as it was at boot, under a writable layer that is lost at the end.  What
changes after boot goes through the shared folder, which has the same path on both sides.
"""

import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from rdma_vm.job import Completed, Job
from rdma_vm.kit import Kit
from rdma_vm.monitor import Monitor, MonitorError
from rdma_vm.qemu import NETWORK, Ends, qemu_command

READY_S_MAX = 300.0
"""A boot takes 6 s on an idle machine with two cores, and many times that on a crowded one."""
BUSYBOX = "/run/rdma_vm/busybox"
"""In the guest, for what the machine's own root file system may lack: `busybox ping`."""
CONSOLE_CHARACTERS = 6000
DIAGNOSIS = """
rdma link
grep -s . /sys/class/infiniband/*/ports/*/hw_counters/* | sed 's,^.*/infiniband/,,' | grep -vE ':0$|lifespan'
rdma resource
ip -statistics -brief address
dmesg | tail -n 20
"""


class VmError(Exception):
    """The VM did not boot, or is gone or does not answer; the message ends with what its console says."""


class Vm:
    """A machine that boots from its construction on; `wait_ready` tells when it can be used.  A context manager.

    name: [a-z0-9]+, unlike that of any other VM with the same shared folder.
    shared: exists, absolute; holds what both sides read and write.
    number: 1 to 254, makes the addresses: 10.77.0.<number> and fd77::<number>.
    cpus: two where both ends of a connection are in this VM: two that poll need one each.
    wire: one end of a socket pair that joins eth0 to another VM's, or nothing, and then eth0 leads nowhere.

    Made by a thread that lives as long as the VM: QEMU is ended with it.
    """

    def __init__(
        self,
        kit: Kit,
        shared: Path,
        *,
        name: str = "a",
        number: int = 1,
        cpus: int = 2,
        memory_mib: int = 2048,
        wire: socket.socket | None = None,
        kernel_options: Sequence[str] = (),
    ) -> None:
        self.kit, self.shared, self.name = kit, shared, name
        self.address, self.address6 = f"10.77.0.{number}", f"fd77::{number:x}"
        self.ready_s: float | None = None
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._begun = time.monotonic()
        self._home = shared / f".{name}"
        self._prepare_home()
        self._files = Path(tempfile.mkdtemp(prefix="rdma-vm-"))
        self._agent, agent = socket.socketpair()
        monitor, monitor_of_qemu = socket.socketpair()
        self._monitor = Monitor(monitor)
        with agent, monitor_of_qemu, (self._files / "qemu").open("wb") as output:
            ends = Ends(agent.fileno(), monitor_of_qemu.fileno(), wire.fileno() if wire else None)
            command = qemu_command(
                kit,
                shared=shared,
                console=self._files / "console",
                ends=ends,
                number=number,
                cpus=cpus,
                memory_mib=memory_mib,
                kernel_options=[f"rdma_vm.name={name}", *kernel_options],
            )
            self._qemu = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=ends.all(),
            )
        self._reader = threading.Thread(target=self._read_agent, name=f"vm {name}", daemon=True)
        self._reader.start()

    def wait_ready(self, timeout_s: float = READY_S_MAX) -> "Vm":
        """Itself, once the agent has said that it is there.  Raises VmError with the console's end."""
        if not self.wait_for(lambda: self.ready_s is not None, self._begun + timeout_s):
            raise self.error(f"is not ready after {timeout_s:.0f} s")
        return self

    def start(self, command: str, timeout_s: float = 60.0) -> Job:
        """Begin a bash command as root, in /, with no standard input; it is ended after its time.  Raises VmError."""
        self.wait_ready()
        with self._changed:
            number = len(self._jobs) + 1
            folder = self._home / str(number)
            folder.mkdir()
            (folder / "command").write_text(command)
            job = Job(self, number, command, timeout_s, folder)
            self._jobs.append(job)
        self.tell(f"run {number} {timeout_s:g}")
        return job

    def run(
        self, command: str, timeout_s: float = 60.0, show: Callable[[str], object] | None = None
    ) -> Completed:
        """`start` and wait until it has ended, whatever its status.  Raises VmError."""
        return self.start(command, timeout_s).wait(show)

    def cut(self) -> None:
        """Lose every packet from and to eth0 from now on, silently: the guest's link stays up.  Raises VmError."""
        self._set_link(up=False)

    def mend(self) -> None:
        """Undo `cut`.  What was lost stays lost.  Raises VmError."""
        self._set_link(up=True)

    def end_jobs(self) -> None:
        """Kill what still runs of the jobs and wait until it has ended.  Raises VmError."""
        left = [job for job in self._jobs if job.status is None]
        for job in left:
            job.kill()
        for job in left:
            job.wait()

    def is_running(self) -> bool:
        """Whether QEMU lives."""
        return self._qemu.poll() is None

    def kill(self) -> None:
        """Power lost: QEMU is ended at once, with all that was running in the guest."""
        self._qemu.kill()
        self._qemu.wait()

    def console(self) -> str:
        """What the guest's kernel and the emulator wrote so far."""
        names = ("console", "qemu")
        found = [
            (self._files / name).read_text(errors="replace")
            for name in names
            if (self._files / name).exists()
        ]
        return "\n".join(found)

    def diagnosis(self, timeout_s: float = 30.0) -> str:
        """For a failure's report: the RDMA device's counters that are not 0, the kernel's log, the console's end."""
        try:
            asked = self.run(DIAGNOSIS, timeout_s).stdout if self.is_running() else "QEMU is gone"
        except VmError as error:
            asked = str(error)
        return f"{asked}\nconsole:\n{self.console()[-CONSOLE_CHARACTERS:]}"

    def close(self) -> None:
        """End the VM, however it is.  Its shared folder is kept."""
        self._qemu.terminate()
        try:
            self._qemu.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        self._agent.close()
        self._monitor.close()
        shutil.rmtree(self._files, ignore_errors=True)

    def __enter__(self) -> "Vm":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_for(self, condition: Callable[[], bool], limit: float) -> bool:
        """Whether the condition holds, waited for until a point of time.monotonic.  Raises VmError if QEMU ends."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or not self.is_running(), limit - time.monotonic())
            if condition():
                return True
        if not self.is_running():
            raise self.error(f"is gone, QEMU's exit status is {self._qemu.returncode}")
        return False

    def tell(self, line: str) -> None:
        """Give the agent one line (guest/agent says which there are).  Raises VmError."""
        try:
            with self._changed:
                self._agent.sendall(f"{line}\n".encode())
        except OSError as error:
            raise self.error(f"takes no command: {error}") from error

    def error(self, what: str) -> VmError:
        return VmError(f"VM {self.name} {what}; its console:\n{self.console()[-CONSOLE_CHARACTERS:]}")

    def _prepare_home(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(parents=True)
        values = {"NAME": self.name, "SHARE": str(self.shared), "IPV4": self.address, "IPV6": self.address6}
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in values.items()]
        (self._home / "parameters").write_text("".join(lines))

    def _read_agent(self) -> None:
        """Note what the agent tells, until QEMU is gone; then wake whoever waits."""
        with self._agent.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                with self._changed:
                    self._note(line.split())
                    self._changed.notify_all()
        self._qemu.wait()
        with self._changed:
            self._changed.notify_all()

    def _note(self, words: Sequence[str]) -> None:
        match words:
            case ["ready"]:
                self.ready_s = time.monotonic() - self._begun
            case ["started", number, pid]:
                self._jobs[int(number) - 1].pid = int(pid)
            case ["ended", number, status]:
                self._jobs[int(number) - 1].status = int(status)

    def _set_link(self, *, up: bool) -> None:
        try:
            self._monitor.command("set_link", {"name": NETWORK, "up": up})
        except MonitorError as error:
            raise self.error(f"keeps its wire as it is: {error}") from error
