"""A placed reply that is cut off in the middle: its memory is nobody's until the connection is gone, then its owner's.

The server's device sends again what was not acknowledged, whatever its process does.  Those writes reach the client
after it has given the connection up and the memory to somebody else; they must not land.
"""

import time

import pytest
from ofl.errors import QuarantinedError
from rdma_vm.two_vms import TwoVms
from rdma_vm.vm import Vm
from transport_times import scaled
from two_vms import steps
from two_vms.remote import Remote, freeze, thaw
from two_vms.rig import DEFAULT, PATIENT, SLACK_S, Rig, Server, Times, connect, hw_counters

ROOM = 4 << 20
DEAD = "until ! rdma resource show qp | grep -q 'type RC .*state RTS'; do sleep 0.1; done"
"""The device tells nobody but the process that owns the queue pair."""
DEATH_S_MAX = scaled(6)


def cut_within_a_reply(two_vms: TwoVms, server: Server, a: Remote, times: Times) -> tuple[int, int]:
    """Returns client and call: a part of the reply has come, and the wire is cut."""
    for _ in range(10):  # until it was in time: the reply may have been quicker
        client = connect(a, server, times)
        a.do(steps.lay_memory, client, ROOM)
        sequence = a.do(steps.place_until_it_comes, client, f"!bytes {ROOM}")
        two_vms.b.cut()
        if not a.do(steps.has_come_whole):
            return client, sequence
        two_vms.b.mend()
        a.do(steps.close, client)
    raise AssertionError(f"{ROOM} bytes always came before the wire was cut")


def wait_until_sent_again(vm: Vm) -> None:
    """Until the VM's device has waited in vain for an acknowledgement."""
    before, limit = hw_counters(vm)["completer_retry_err"], time.monotonic() + scaled(6)
    while hw_counters(vm)["completer_retry_err"] == before:
        assert time.monotonic() < limit, "nothing is sent again"


def test_writes_that_are_sent_again_after_the_loss_do_not_land(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a = rig.client()
    client, sequence = cut_within_a_reply(two_vms, server, a, DEFAULT)
    freeze(server.job)  # so that it keeps its queue pair, and the device goes on with it
    assert a.do(steps.cancel, client, sequence) is False, "in quarantine"
    with pytest.raises(QuarantinedError):
        a.do(steps.submit_into_room, client)
    assert a.do(steps.settled, client, sequence, DEFAULT.loss_s + SLACK_S)
    assert not a.do(steps.is_alive, client), "only the loss of the connection can have settled it"
    a.do(steps.take_memory)
    a.do(steps.listen_to_card)
    two_vms.b.mend()
    # One arrives that was sent again, for a queue pair that takes nothing any more.
    a.do(steps.wait_for_write, scaled(6))
    assert a.do(steps.changed_bytes) == 0
    thaw(server.job)
    two_vms.b.run(DEAD, DEATH_S_MAX).check()
    assert a.do(steps.changed_bytes) == 0
    other = connect(a, server)
    a.do(steps.echo, other, 75_000)
    assert a.do(steps.changed_bytes) == 0
    a.do(steps.lay_memory, other, ROOM)
    a.do(steps.echo_placed, other, ROOM)


def test_a_reply_that_is_cut_off_for_less_than_the_loss_limit_comes_whole(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a = rig.client()
    client, sequence = cut_within_a_reply(two_vms, server, a, PATIENT)
    pending = a.start(steps.wait_placed, client, sequence)
    wait_until_sent_again(two_vms.b)
    two_vms.b.mend()
    assert pending.result() == [ROOM, ROOM]
