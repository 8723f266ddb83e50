"""The rig of two VMs: packets and RDMA pass between them, and cut means cut both ways without anybody being told."""

import pytest
from perftest_output import result_row
from rdma_vm.two_vms import TwoVms
from rdma_vm.vm import BUSYBOX, Vm

SERVE = "ib_send_lat -d rxe0 -x 1 -p 18515 -s 8 -n 100"
LISTENED_TO = "until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done"
"""18515 is 4853 in hexadecimal; 0A is the state of a socket that listens."""
EMULATED_S_MAX = 120.0


def is_answered(vm: Vm, other: Vm) -> bool:
    """Whether any of three packets to the other VM comes back."""
    ended = vm.run(f"{BUSYBOX} ping -c 3 -W 1 {other.address}", EMULATED_S_MAX)
    assert "3 packets transmitted" in ended.stdout, ended
    return ended.status == 0


def test_each_vm_answers_the_other(two_vms: TwoVms) -> None:
    assert is_answered(two_vms.a, two_vms.b)
    assert is_answered(two_vms.b, two_vms.a)


def test_perftest_runs_between_them(two_vms: TwoVms) -> None:
    server = two_vms.b.start(SERVE, EMULATED_S_MAX)
    two_vms.b.run(LISTENED_TO, EMULATED_S_MAX).check()
    client = two_vms.a.run(f"{SERVE} {two_vms.b.address}", EMULATED_S_MAX).check()
    server.wait().check()
    row = result_row(client.stdout)
    assert row[:2] == [8, 100]
    assert row[2] > 0


@pytest.mark.parametrize("end", ["a", "b"])
def test_a_wire_that_is_cut_loses_everything_and_looks_whole(two_vms: TwoVms, end: str) -> None:
    state = "cat /sys/class/net/eth0/carrier /sys/class/infiniband/rxe0/ports/1/state"
    cut: Vm = getattr(two_vms, end)
    cut.cut()
    assert not is_answered(two_vms.a, two_vms.b)
    assert not is_answered(two_vms.b, two_vms.a)
    assert [vm.run(state).check().stdout for vm in (two_vms.a, two_vms.b)] == ["1\n4: ACTIVE\n"] * 2
    cut.mend()
    assert is_answered(two_vms.a, two_vms.b)


def test_a_job_that_is_killed_or_runs_too_long_tells_so(two_vms: TwoVms) -> None:
    jobs = [two_vms.a.start("echo begun; sleep 1000", 900), two_vms.a.start("echo begun; sleep 1000", 900)]
    jobs[0].kill()
    jobs[1].signal()
    ended = [job.wait() for job in jobs] + [two_vms.a.run("echo begun; sleep 1000", timeout_s=2)]
    assert [job.status for job in ended] == [128 + 9, 128 + 15, 124]


def test_the_shared_folder_is_one_on_all_sides(two_vms: TwoVms) -> None:
    file = two_vms.shared / "note"
    file.write_text("from here\n")
    two_vms.a.run(f"cat {file}; echo from a >>{file}").check()
    assert two_vms.b.run(f"cat {file}").check().stdout == "from here\nfrom a\n"
    assert file.read_text() == "from here\nfrom a\n"
