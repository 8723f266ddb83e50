"""`ofl bench rdma --compare` on a real device, beside perftest: every comparison is made, and none fails."""

import json
import math
import subprocess
import sys

from ofl.bench import peers
from ofl.bench.figures import parse_size
from ofl.commands.bench import COMPARED_SPIN_US
from transport_times import scaled

SIZES = ("64", "64K")
"""One that is echoed alone, and the smallest of which the bandwidth is compared, too."""


def test_every_comparison_with_perftest_has_a_ratio(rdma_device: str, rdma_address: str) -> None:
    words = ["rdma", "--compare", "--sizes", *SIZES, "--rounds", "1", "--seconds", "0.2", "--json"]
    command = [sys.executable, "-m", "ofl", "bench", *words, "--timeout-ms", "60000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(80), check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["target"] == f"rdma://{rdma_address}:0"
    assert report["missing"] == report["failures"] == []
    port = peers.RdmaPort(rdma_device, 1, 0)
    wanted = peers.comparisons("rdma", rdma_address, [*map(parse_size, SIZES)], [COMPARED_SPIN_US, 0], port)
    named = [
        (one.case.name, one.case.nbytes, one.spin_us, f"{one.tool.command} {one.how}".rstrip())
        for one in wanted
    ]
    assert sorted(named) == sorted(
        (row["case"], row["bytes"], row["spin_us"], row["peer_tool"]) for row in report["compared"]
    )
    assert {name.split()[0] for *_, name in named} == {"ib_send_lat", "ib_write_lat", "ib_write_bw"}
    for row in report["compared"]:
        assert len(row["ofl"]) == len(row["peer"]) == 1
        assert 0 < row["ratio"] < math.inf, row
