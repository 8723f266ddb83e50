"""The group of ranks with real processes and a real gloo group: words and texts arrive, an absent rank is named."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

RUN_S = 120.0
RANK = """
import os
import sys
from types import SimpleNamespace
import torch
from spark_overlay.decision import DecisionLayout
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.policies import RemoteRounds
from spark_overlay.vllm_seam.ranks import TensorParallel
from spark_overlay.vllm_seam.words import Words

rank, store, absent = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "absent"
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
group = SimpleNamespace(
    rank_in_group=rank, local_rank=rank, world_size=2, cpu_group=torch.distributed.group.WORLD,
    broadcast=lambda words, src: torch.distributed.broadcast(words, src=src),
)
ranks = TensorParallel(group, wait_s=2.0 if absent else 60.0)
if absent and rank == 1:
    sys.stdin.read()
    sys.exit()
try:
    print(ranks.gather(f"rank {rank} says \\u00fc\\udcff"))
except SeamError as error:
    print(error)
else:
    lead = SimpleNamespace() if rank == 0 else None
    print(RemoteRounds(Words(DecisionLayout(3, 5), torch.device("cpu")), ranks, lead).prove())
    ranks.gather("done")
sys.stdout.flush()
os._exit(0)  # as executors end their workers: gloo's threads may wait for an absent rank, or abort as a peer goes
"""


def spoken(folder: Path, mode: str) -> list[str]:
    """What ranks 0 and 1 print; an absent rank 1 is there, and takes part in nothing."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK, str(rank), str(folder / "store"), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = []
        for process in processes:
            out, err = process.communicate(timeout=RUN_S)
            assert process.returncode == 0, err
            said.append(out)
        return said
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_every_rank_hears_every_rank_and_reads_what_rank_0_writes(tmp_path: Path) -> None:
    expected = "['rank 0 says ü?', 'rank 1 says ü?']\nTrue\n"
    assert spoken(tmp_path, "present") == [expected, expected]


def test_a_rank_that_takes_no_part_is_waited_for_within_a_bound(tmp_path: Path) -> None:
    said, nothing = spoken(tmp_path, "absent")
    assert "not every tensor-parallel rank answered within 2 s" in said
    assert "VLLM_DSPARK_REMOTE set alike" in said
    assert nothing == ""
