"""A server that is killed, stopped or cut off, and one that comes back: told by name and in time, over two hosts.

Killed: its kernel ends the control socket, which tells at once.  Stopped or cut off: only silence tells.
"""

import time

import pytest
from ofl.errors import DeadlineError, PeerLostError
from rdma_vm.two_vms import TwoVms
from transport_times import scaled
from two_vms import steps
from two_vms.remote import freeze, thaw
from two_vms.rig import DEFAULT, FAST, PATIENT, SLACK_S, Rig, connect

ENDED = "the peer closed the connection without a word"
SILENT = f"no sign of life from the peer for {DEFAULT.loss_s * 1000:.0f} ms"
ROOM = 300_000


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "idle"])
def test_a_server_that_is_killed_is_lost_at_once(two_vms: TwoVms, waiting: bool) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server)
    sequence = a.do(steps.submit, client, "!hold") if waiting else 0
    pending = a.start(steps.wait, client, sequence) if waiting else a.start(steps.wait_for_loss, client)
    begun = time.monotonic()
    server.job.kill()
    if waiting:
        with pytest.raises(PeerLostError, match=f"{server.endpoint}: .*{ENDED}"):
            pending.result()
    else:
        assert pending.result() == ENDED
    assert time.monotonic() - begun < SLACK_S


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "idle"])
def test_a_server_that_is_frozen_is_lost_after_the_loss_limit(two_vms: TwoVms, waiting: bool) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server, DEFAULT)
    sequence = a.do(steps.submit, client, "!hold") if waiting else 0
    begun = time.monotonic()
    freeze(server.job)
    if waiting:
        with pytest.raises(PeerLostError, match=SILENT):
            a.do(steps.wait, client, sequence)
    else:
        assert a.do(steps.wait_for_loss, client) == SILENT
    assert DEFAULT.loss_s - DEFAULT.heartbeat_s < time.monotonic() - begun < DEFAULT.loss_s + SLACK_S


@pytest.mark.parametrize(("end", "waiting"), [("a", True), ("b", False)], ids=["a_waiting", "b_idle"])
def test_a_server_that_is_cut_off_is_lost_after_the_loss_limit(
    two_vms: TwoVms, waiting: bool, end: str
) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server, DEFAULT)
    sequence = a.do(steps.submit, client, "!hold") if waiting else 0
    begun = time.monotonic()
    getattr(two_vms, end).cut()
    if waiting:
        with pytest.raises(PeerLostError, match=SILENT):
            a.do(steps.wait, client, sequence)
    else:
        assert a.do(steps.wait_for_loss, client) == SILENT
    assert DEFAULT.loss_s - DEFAULT.heartbeat_s < time.monotonic() - begun < DEFAULT.loss_s + SLACK_S
    with pytest.raises(PeerLostError, match=SILENT):
        a.do(steps.submit, client, "!hold")


def test_a_deadline_that_is_nearer_than_the_loss_limit_comes_first(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    a, client = rig.connected(rig.serve(), PATIENT)
    two_vms.a.cut()
    sequence = a.do(steps.submit, client, "late")
    begun = time.monotonic()
    with pytest.raises(DeadlineError):
        a.do(steps.wait, client, sequence, scaled(0.1))
    assert scaled(0.1) <= time.monotonic() - begun < scaled(0.1) + SLACK_S
    assert a.do(steps.is_alive, client)
    two_vms.a.mend()
    # The queue pairs send again what was lost: the call ends well, late.
    assert a.do(steps.wait, client, sequence) == len("late")
    a.do(steps.echo, client, 75_000)


def test_a_reconnector_comes_back_with_growing_delays_once_the_wire_is_mended(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a = rig.client()
    first_s, longest_s = scaled(0.05), scaled(0.4)
    a.do(steps.keep_connected, server.endpoint, FAST.heartbeat_s, FAST.loss_s, first_s, longest_s)
    life = a.do(steps.attempt, scaled(5))
    assert life["error"] == "", life
    two_vms.a.cut()
    # The first call is lost with the connection; what follows are attempts to connect.
    attempts = [a.do(steps.attempt, scaled(5))] + [a.do(steps.attempt, scaled(0.3)) for _ in range(3)]
    assert attempts[0]["error"] == "PeerLostError", attempts
    assert all(attempt["error"] for attempt in attempts), attempts
    two_vms.a.mend()
    while attempts[-1]["error"]:
        assert len(attempts) < 20, attempts
        attempts.append(a.do(steps.attempt, scaled(0.3)))
    assert attempts[-1]["boot_nonce"] == life["boot_nonce"], "the server lived on"
    # The connection had lived for longer than the longest delay: the first attempt follows at once.
    assert attempts[1]["waited_s"] == 0, attempts
    delays = [attempt["left_s"] for attempt in attempts[1:4]]
    assert 2 * delays[0] < delays[2] <= longest_s, "doubled twice, less or more a fifth"


def test_a_server_that_comes_back_on_the_same_port_is_another_life(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server)
    a.do(steps.lay_memory, client, ROOM)
    a.do(steps.echo_placed, client, ROOM)
    before = a.do(steps.facts, client)["boot_nonce"]
    server.job.kill()
    assert server.job.wait().status == 128 + 9
    a.do(steps.wait_for_loss, client)
    again = rig.serve(server.endpoint)
    assert again.endpoint == server.endpoint
    with pytest.raises(PeerLostError, match=ENDED):
        a.do(steps.echo, client, 64)
    other = connect(a, again)
    assert a.do(steps.facts, other)["boot_nonce"] != before
    # The memory is registered as before; the new life learns of it by the new connection alone.
    a.do(steps.lay_memory, other, ROOM)
    a.do(steps.echo_placed, other, ROOM)
    assert a.do(steps.counters, other)["accepted"] == 1


def test_both_ends_of_a_wire_that_is_cut_give_up_and_the_server_goes_on(two_vms: TwoVms) -> None:
    """Another client, beside the server, is served all the while."""
    rig = Rig(two_vms)
    server = rig.serve()
    a, client = rig.connected(server, DEFAULT)
    beside = rig.client(two_vms.b)
    local = connect(beside, server)
    two_vms.b.cut()
    limit = time.monotonic() + DEFAULT.loss_s + SLACK_S
    while (counters := beside.do(steps.counters, local))["lost"] == 0:
        assert time.monotonic() < limit, counters
        beside.do(steps.echo, local, 75_000)
    assert counters["disconnects"] == 1
    assert a.do(steps.wait_for_loss, client) == SILENT
    two_vms.b.mend()
    other = connect(a, server)
    a.do(steps.echo, other, 75_000)
    assert a.do(steps.counters, other)["garbage"] == 0


def test_a_client_that_is_frozen_is_dropped_and_learns_it_when_it_goes_on(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    server = rig.serve()
    frozen, client = rig.connected(server, DEFAULT)
    other, watching = rig.connected(server)
    freeze(frozen.job)
    limit = time.monotonic() + DEFAULT.loss_s + SLACK_S
    while (counters := other.do(steps.counters, watching))["lost"] == 0:
        assert time.monotonic() < limit, counters
    thaw(frozen.job)
    assert frozen.do(steps.wait_for_loss, client) != ""
    other.do(steps.echo, watching, 75_000)
