"""Doctor on the worker's host: what is planted is found by one check alone, which names the repair."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import write_pair
from click.testing import CliRunner
from ofl.doctor import report
from ofl.doctor.checks import HOST_CHECKS
from ofl.doctor.findings import BROKEN, Finding, Result, exit_status, table
from ofl.doctor.gather import Wanted
from ofl.doctor.host import Host
from ofl.doctor.simulated import WORKER, healthy
from x86_worker.checkpoint import read_identity
from x86_worker.cli import main
from x86_worker.doctor import asks as real
from x86_worker.doctor.asks import Examined, Gpu, Gpus, WorkerAsks, gpu_index, parse_gpus, worker_facts
from x86_worker.doctor.checks import WORKER_CHECKS
from x86_worker.doctor.command import examine_worker

DOCS = Path(__file__).parents[4] / "docs/operations/doctor.md"
TWO = Gpus(
    (Gpu(0, "NVIDIA GeForce RTX 3090", 24576, 800, "570.1"), Gpu(1, "NVIDIA T4", 15360, 15000, "570.1"))
)


@dataclass
class Site:
    """What a test changes before it examines."""

    folder: Path
    host: Host
    asks: WorkerAsks
    examined: Examined
    listen: tuple[str, ...] = (f"rdma://{WORKER}:18620",)
    facts: dict[str, Any] = field(default_factory=dict)

    def examine(self) -> list[Finding]:
        wanted = Wanted(role="worker", listen=self.listen, key_file=str(self.folder / "key"))
        self.facts, findings = examine_worker(self.host, self.asks, self.examined, wanted)
        return findings

    def wrong(self) -> list[Finding]:
        return [found for found in self.examine() if found.result in (Result.FAIL, Result.WARN)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    drafter, target = write_pair(tmp_path)
    (tmp_path / "key").write_text("k" * 64)
    (tmp_path / "key").chmod(0o600)
    record = read_identity(drafter, target)
    (tmp_path / "identity.json").write_text(json.dumps(record.to_json()))
    examined = Examined({}, drafter, target, "cuda:1", identity_file=tmp_path / "identity.json")
    host = healthy(tmp_path / "root", "x86", WORKER)
    return Site(tmp_path, host, WorkerAsks(lambda: TWO, lambda: True), examined)


def test_on_a_healthy_host_nothing_is_found_and_the_report_names_the_drafter(site: Site) -> None:
    findings = site.examine()
    assert [found for found in findings if found.result in (Result.FAIL, Result.WARN)] == []
    assert exit_status(findings) == 0
    record = read_identity(site.examined.drafter, site.examined.target)
    assert site.facts["identities"] == {
        "identity": record.identity.hex(),
        "markov_identity": record.markov_identity.hex(),
    }
    assert site.facts["role"] == "worker"


def examined(**changes: Any) -> Callable[[Site], None]:
    def plant(site: Site) -> None:
        site.examined = replace(site.examined, **changes)

    return plant


def asks(**changes: Any) -> Callable[[Site], None]:
    def plant(site: Site) -> None:
        site.asks = replace(site.asks, **changes)

    return plant


def host(**changes: Any) -> Callable[[Site], None]:
    def plant(site: Site) -> None:
        site.host = replace(site.host, **changes)

    return plant


def no_weights(site: Site) -> None:
    (site.examined.drafter / "model.safetensors").unlink()


def other_identity(site: Site) -> None:
    (site.folder / "identity.json").write_text(
        json.dumps({"identity": "ab" * 32, "markov_identity": "cd" * 32})
    )


def elsewhere(site: Site) -> None:
    site.listen = ("rdma://10.99.0.1:18620",)


def open_key(site: Site) -> None:
    (site.folder / "key").chmod(0o604)


PLANTED: dict[str, tuple[Callable[[Site], None], str, tuple[str, ...]]] = {
    "a folder without weights": (no_weights, "checkpoint", ("--drafter", "holds no *.safetensors")),
    "a folder that is not there": (examined(drafter=Path("/absent")), "checkpoint", ("/absent",)),
    "another drafter than identity.json's": (
        other_identity,
        "checkpoint-identity",
        ("x86-worker identity --drafter", "--target"),
    ),
    "no torch": (asks(has_torch=lambda: False), "torch-installed", ("pip install x86-worker[torch]",)),
    "no driver": (
        asks(list_gpus=lambda: Gpus((), "nvidia-smi is not installed")),
        "gpu",
        ("install the driver", "nvidia-smi is not installed"),
    ),
    "a GPU that is not there": (
        examined(device="cuda:2"),
        "gpu",
        ("0 (NVIDIA GeForce RTX 3090), 1 (NVIDIA T4)",),
    ),
    "a GPU that is hidden": (
        examined(environ={"CUDA_VISIBLE_DEVICES": "0"}),
        "gpu",
        ("CUDA_VISIBLE_DEVICES",),
    ),
    "a GPU that somebody fills": (examined(device="cuda:0"), "gpu-memory", ("1024 MiB",)),
    "an address to listen on that is not here": (
        elsewhere,
        "listen-address",
        ("ip address add 10.99.0.1/PREFIX", WORKER),
    ),
    "a port that somebody has": (
        host(listen_fault=lambda own, port: "address already in use"),
        "listen-port",
        ("ss -ltnp 'sport = :18620'",),
    ),
    "a key that others may read": (open_key, "key-file", ("chmod 600",)),
    "locked memory that is limited": (
        host(limits=lambda: {"memlock_bytes": 8 << 20}),
        "memlock",
        ("ulimit -l 65536",),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_by_one_check_alone_with_its_repair(site: Site, name: str) -> None:
    plant, check, words = PLANTED[name]
    plant(site)
    (found,) = site.wrong()
    assert found.check == check
    assert found.repair != BROKEN
    for word in words:
        assert word in found.repair


def test_on_a_cpu_no_gpu_is_asked_for(site: Site) -> None:
    def never() -> Gpus:
        raise AssertionError("the driver was asked")

    site.asks = replace(site.asks, list_gpus=never)
    site.examined = replace(site.examined, device="cpu", identity_file=None)
    findings = {found.check: found.result for found in site.examine()}
    skipped = {findings[name] for name in ("gpu", "gpu-memory", "checkpoint-identity")}
    assert skipped == {Result.SKIP}


def test_without_the_digest_identities_are_not_judged(site: Site) -> None:
    site.examined = replace(site.examined, digest=False)
    findings = {found.check: found for found in site.examine()}
    assert site.facts["identities"] == {}
    assert findings["checkpoint-identity"].result is Result.SKIP
    assert "--no-digest" in findings["checkpoint"].seen


def test_a_file_that_cannot_be_read_is_told_by_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/weights")

    monkeypatch.setattr(real, "read_drafter", closed)
    facts = worker_facts(site.asks, site.examined)
    assert facts["worker"]["checkpoint"]["error"] == "/weights: Permission denied"


@pytest.mark.parametrize(
    ("device", "visible", "index"),
    [
        ("cuda", None, 0),
        ("cuda:3", None, 3),
        ("cuda:1", "4,2", 2),
        ("cuda:2", "4,2", -1),
        ("cuda", "GPU-8a1b", -1),
        ("cuda", "", -1),
        ("cuda:x", None, -1),
    ],
)
def test_a_device_is_numbered_as_the_driver_does(device: str, visible: str | None, index: int) -> None:
    assert gpu_index(device, visible) == index


def test_the_drivers_list_is_read() -> None:
    text = "0, NVIDIA GeForce RTX 3090, 24576, 800, 570.1\n1, NVIDIA T4, 15360, 15000, 570.1\n"
    assert parse_gpus(text) == TWO
    assert parse_gpus("").error == "nvidia-smi lists no GPU"
    for wrong in ("0, A", "x, A, 1, 2, 3", "0, A, [N/A], 2, 3", "NVIDIA-SMI has failed"):
        assert wrong in parse_gpus(wrong).error


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (FileNotFoundError(), "is not installed"),
        (subprocess.TimeoutExpired("nvidia-smi", 20), "timed out"),
        (subprocess.CompletedProcess("", 9, "", "No devices were found\nmore"), "No devices were found"),
        (subprocess.CompletedProcess("", 9, "", ""), "status 9"),
        (subprocess.CompletedProcess("", 0, "0, A, 5, 4, 570", ""), ""),
    ],
)
def test_a_driver_that_does_not_answer_is_told_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, answer: Any, words: str
) -> None:
    def run(*_: object, timeout: float, **__: object) -> Any:
        assert timeout == real.GPU_WAIT_S
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(subprocess, "run", run)
    found = real.list_gpus()
    assert words in found.error
    assert bool(found.found) is (words == "")


def test_torch_is_looked_up_and_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert real.has_torch()


# --- the command and the page ---


def test_the_command_prints_findings_with_one_exit_status(site: Site) -> None:
    given = ["doctor", "--drafter", str(site.examined.drafter), "--target", str(site.examined.target)]
    result = CliRunner().invoke(main, [*given, "--listen", "tcp://127.0.0.1:0"])
    assert "PASS  checkpoint " in result.output
    assert "PASS  listen-port" in result.output
    result = CliRunner().invoke(main, [*given, "--json"])
    document = json.loads(result.output)
    assert document["command"] == "x86-worker doctor"
    names = [check.name for check in (*WORKER_CHECKS, *HOST_CHECKS)]
    assert [one["check"] for one in document["findings"]] == names
    peer = site.folder / "peer.json"
    peer.write_text(result.output)
    result = CliRunner().invoke(main, [*given, "--peer", str(peer)])
    assert "PASS  peer-identities" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "tpu"], "--device: cpu, cuda or cuda:N is needed, not 'tpu'"),
        (["--listen", "quic://a:1"], "scheme 'quic' is unknown"),
        (["--peer", "/absent.json"], "--peer: /absent.json cannot be read"),
        (["--identity-file", "/absent.json"], "/absent.json: cannot be read"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(site: Site, arguments: list[str], words: str) -> None:
    given = ["doctor", "--drafter", str(site.examined.drafter), "--target", str(site.examined.target)]
    result = CliRunner().invoke(main, [*given, *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_the_page_has_the_table_of_all_checks() -> None:
    part = DOCS.read_text(encoding="utf-8").partition("<!-- begin worker checks -->\n")[2]
    assert part.partition("<!-- end worker checks -->")[0] == table(WORKER_CHECKS)


def test_no_fact_holds_the_content_of_the_key(site: Site) -> None:
    (site.folder / "key").write_text("s3cr3t-" * 8)
    findings = site.examine()
    assert "s3cr3t" not in json.dumps(report.document("x86-worker doctor", site.facts, findings))
