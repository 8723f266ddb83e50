"""Local ports are few: connections share them among servers, calls take none, and what finds none is told why."""

import json
import os
import subprocess

import pytest
from transport_harness import Harness
from transport_times import scaled

PORTS = 32


def test_connections_share_local_ports_among_servers_and_calls_take_none(harness: Harness) -> None:
    if os.geteuid() != 0:
        pytest.skip("a network namespace, to have few local ports in, takes root")
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {tried.stderr.strip()}")
    process = harness.peer_process("few_ports", str(PORTS), before=("unshare", "--net"))
    shown, _ = process.communicate(timeout=scaled(180))
    found = json.loads(shown)
    assert found.pop("open") == 2 * PORTS
    assert "no local port left for it (net.ipv4.ip_local_port_range)" in found.pop("refused")
    assert found.pop("grown") <= 0
    assert found == {"established": 1}
