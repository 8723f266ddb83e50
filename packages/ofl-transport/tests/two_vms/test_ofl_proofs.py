"""Who may connect over RDMA: whoever proves on the control socket to hold the key, before there is a queue pair."""

import pytest
from access_tools import KEY, OTHER_KEY, key_file
from ofl.errors import ConnectRefusedError
from rdma_vm.two_vms import TwoVms
from two_vms import steps
from two_vms.rig import Rig, connect


def test_a_key_lets_in_whoever_holds_it_and_nobody_else(two_vms: TwoVms) -> None:
    rig = Rig(two_vms)
    key, other_key = (key_file(two_vms.shared, content) for content in (KEY, OTHER_KEY))
    server = rig.echo_serve("--key-file", str(key), f"rdma://{two_vms.b.address}:0")
    a, client = rig.connected(server, key_file=key)
    assert a.do(steps.facts, client)["authenticated"]
    a.do(steps.echo, client, 75_000)
    with pytest.raises(ConnectRefusedError, match="another key"):
        connect(a, server, key_file=other_key)
    with pytest.raises(ConnectRefusedError, match="wants proof"):
        connect(a, server)
    assert two_vms.b.run("rdma resource show qp | grep -c 'type RC'").stdout == "1\n", "of the first alone"
    a.do(steps.echo, client, 64)
