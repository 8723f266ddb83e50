"""The bundle: whatever its inputs hold, no prompt, token, row or secret is in it; it is written whole or not at all."""

import gzip
import hashlib
import json
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from doctor_engine import IDENTITY, Site, site_in
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.cli import main
from spark_overlay.readiness import ReadinessRecord, write_record
from spark_overlay.report import write_json
from spark_overlay.settings import PREFIX
from spark_overlay.support_bundle.archive import OutputError, archive, manifest_of, put
from spark_overlay.support_bundle.collect import Asked, Collected, collect, settings
from spark_overlay.support_bundle.figures import MANIFEST, STATS
from spark_overlay.support_bundle.known_text import LEFT_OUT

PROMPT = "tellmeaboutthepatientJaneRoe"
SECRET = "hf_S3cr3tS3cr3tS3cr3t"
# So long that no digest or time holds one by chance: three digits once stood in a sha256.
TOKENS = [1_998_872_899, 1_889_991_898, 1_899_198_771, 1_988_940_891]
ROWS = "3f80deadbeef4000cafe3f80"
PLANTED = (PROMPT, SECRET, ROWS, *map(str, TOKENS))
EVERYTHING = f"{PROMPT} {SECRET} {ROWS} {' '.join(map(str, TOKENS))}"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_in(tmp_path)


def poisoned_stats(path: Path, run: Any) -> None:
    """A real engine's figures with what must not leave in every place that can hold it."""
    stats: dict[str, Any] = run.drafter.stats()
    example = stats["shadow"]["examples"][0]
    example |= {"request_id": PROMPT, "anchor": TOKENS[0], "local": TOKENS, "remote": TOKENS}
    for name in ("disabled", "last_failure", "last_bad_reply", "last_internal_error", "n_out_reason"):
        stats[name] = EVERYTHING
    stats["worker"] |= {"name": SECRET, "identity": f"{ROWS} {SECRET}", PROMPT: 1}
    stats["transport"] |= {"wire": EVERYTHING, "library": f"ofl 0.1.0 {SECRET}", "scheme": PROMPT}
    stats["endpoint"] = f"tcp://w:1?bind={SECRET}"
    stats["engine_id"] = ROWS + SECRET
    stats |= {"policy": PROMPT, "prompt": PROMPT, "tokens": TOKENS, PROMPT: {"a": 1}, "rows": ROWS}
    stats["counters"] |= {PROMPT: 5, SECRET: 1, "rounds": int.from_bytes(PROMPT.encode(), "big")}
    stats["latency"][PROMPT] = {"count": 1}
    stats["acceptance"] |= {"by_context": [{"from": 1, PROMPT: 2, "below": SECRET}], "accepted": SECRET}
    stats["memory"] = {"kv_blocks": 7, PROMPT: 4, "ring_bytes": ROWS}
    stats["control"] = {"reason": EVERYTHING}
    stats["n_out_by_reqs"] = TOKENS
    stats["breaker"]["state"] = SECRET
    write_json(path, stats)


def poisoned_log(path: Path) -> None:
    kept = "remote DSpark circuit breaker closed: the probe round succeeded"
    path.write_text(
        f"(EngineCore_DP0 pid=1) INFO 12-01 02:03:04 [link.py:1] {kept}\n"
        f"INFO 12-01 02:03:04 [logger.py:1] Received request r: prompt: '{PROMPT}', prompt_token_ids: {TOKENS}\n"
        f"remote DSpark worker at tcp://w:1: {EVERYTHING}\n"
        f"remote DSpark shadow: request {PROMPT} at 1 behind token {TOKENS[0]}: local {TOKENS}, remote {TOKENS}\n"
        f"remote DSpark control: paused: {EVERYTHING} (x)\n"
        f"connection 5: HELLO refused with MISMATCH: {EVERYTHING}\n"
        f"{EVERYTHING}\n"
    )


def poisoned(site: Site, run: Any) -> Asked:
    """A site with what must not leave in every input of the bundle."""
    folder = site.folder
    poisoned_stats(folder / "stats.json", run)
    poisoned_log(folder / "engine.log")
    record = ReadinessRecord(
        pid=7,
        start_id=EVERYTHING,
        policy=PROMPT,
        endpoint=f"tcp://w:1 {SECRET}",
        identity=SECRET,
        versions={"vllm": f"0.33.0 {SECRET}", PROMPT: "1", "spark-overlay": "0.1.0"},
        worker=f"not there yet: {EVERYTHING}",
    )
    write_record(folder / "ready.json", record)
    overlay = {
        "format": 1,
        "vllm_version": PROMPT,
        "file": f"vllm/{SECRET}",
        PROMPT: 1,
        "base_sha256": "ab" * 32,
    }
    (folder / "overlay.json").write_text(json.dumps(overlay))
    (folder / "key").write_text(SECRET + "k" * 40)
    site.environ |= {
        "HF_TOKEN": SECRET,
        "VLLM_API_KEY": SECRET,
        "VLLM_PLUGINS": f"spark_overlay,{PROMPT} {SECRET}",
        "CUDA_MODULE_LOADING": SECRET,
        f"{PREFIX}_START_ID": EVERYTHING,
        f"{PREFIX}_{SECRET.upper()}": EVERYTHING,
        f"{PREFIX}_NOTE": EVERYTHING,
    }

    def ask(*_: object) -> dict[str, Any]:
        return {
            "exit_status": 1,
            "hello_status": SECRET,
            "worker_name": SECRET,
            "worker_stats": EVERYTHING,
            "worker_identity": IDENTITY,
            "wire": EVERYTHING,
            "ping_us": 20.0,
            "error": f"HELLO: MISMATCH {EVERYTHING}",
        }

    object.__setattr__(site.asks, "ask_worker", ask)
    return Asked(site.environ, logs=(folder / "engine.log",), overlay=folder / "overlay.json", timeout_s=1.0)


def text_of(found: Collected) -> str:
    return b"\n".join(
        [*(name.encode() for name in found.files), *found.files.values()]
    ).decode() + json.dumps(found.left_out)


def test_nothing_that_is_planted_in_any_input_is_in_the_bundle(
    site: Site, make_run: Callable[..., Any]
) -> None:
    found = collect(poisoned(site, make_run(POLICY="shadow").eventful()), site.host, site.asks)
    text = text_of(found)
    for planted in PLANTED:
        assert planted not in text
        assert planted.lower() not in text.lower()
    assert set(found.files) >= {"doctor.json", "stats.json", "ready.json", "overlay.json", "logs/1.log"}


def test_a_bad_setting_is_left_out_by_its_value_and_named(site: Site) -> None:
    site.environ[f"{PREFIX}_TIMEOUT_MS"] = EVERYTHING
    site.environ[PREFIX] = EVERYTHING
    kept = settings(site.environ)
    assert kept["settings"][f"{PREFIX}_TIMEOUT_MS"] == kept["settings"][PREFIX] == LEFT_OUT
    found = collect(Asked(site.environ), site.host, site.asks)
    for planted in PLANTED:
        assert planted not in text_of(found)


def test_what_helps_is_in_it(site: Site, make_run: Callable[..., Any]) -> None:
    run = make_run(POLICY="shadow").eventful()
    write_json(site.folder / "stats.json", run.drafter.stats())
    log = site.folder / "log"
    poisoned_log(log)
    record = ReadinessRecord(
        7, "ab" * 16, "capacity", "tcp://w:1", IDENTITY, {"vllm": "0.33.0"}, worker="connected"
    )
    write_record(site.folder / "ready.json", record)
    found = collect(Asked(site.environ, logs=(log,)), site.host, site.asks)
    stats = json.loads(found.files["stats.json"])["stats"]
    assert stats["counters"] == run.drafter.stats()["counters"]
    assert stats["shadow"]["agreed_by_position"] == run.drafter.stats()["shadow"]["agreed_by_position"]
    assert "examples" not in stats["shadow"]
    assert stats["shadow"]["left_out"] == 1
    assert "spark_overlay_rounds_total" in found.files["metrics.txt"].decode()
    assert json.loads(found.files["ready.json"])["worker"] == "connected"
    assert json.loads(found.files["ready.json"])["start_id"] == "ab" * 16
    kept = json.loads(found.files["settings.json"])
    assert kept["settings"][PREFIX].startswith("rdma://10.77.0.1")
    assert kept["VLLM_PLUGINS"] == "spark_overlay"
    doctor = json.loads(found.files["doctor.json"])
    assert {one["check"]: one["result"] for one in doctor["findings"]}["worker"] == "PASS"
    assert doctor["facts"]["engine"]["worker"]["worker_identity"] == IDENTITY
    assert json.loads(found.files["host.json"])["rdma_devices"][0]["name"] == "rocep1s0f0"
    assert found.files["logs/1.log"].decode().splitlines() == [
        "(EngineCore_DP0 pid=1) INFO 12-01 02:03:04 [link.py:1] remote DSpark circuit breaker closed: the probe round "
        "succeeded",
        f"remote DSpark worker at tcp://w:1: {LEFT_OUT}",
        f"remote DSpark control: {LEFT_OUT}",
        f"connection 5: HELLO refused with MISMATCH: {LEFT_OUT}",
    ]
    assert found.left_out["logs/1.log"] == "3 of the last 7 lines"


def test_what_is_not_there_is_told_with_its_reason(site: Site) -> None:
    os.mkfifo(site.folder / "ready.json")
    (site.folder / "stats.json").write_text("[]")
    os.mkfifo(site.folder / "overlay")
    asked = Asked(site.environ, overlay=site.folder / "overlay")
    found = collect(asked, site.host, site.asks)
    assert found.left_out == {
        "stats.json": "the stats file is missing or is none",
        "ready.json": "the readiness record is missing or is none",
        "overlay.json": "the manifest of the file overlay is missing or is none",
    }
    site.environ = {PREFIX: "tcp://w:1"}
    found = collect(Asked(site.environ, timeout_s=0.0), site.host, site.asks)
    assert found.left_out["stats.json"] == f"{PREFIX}_STATS_FILE is not set"
    assert found.left_out["ready.json"] == f"{PREFIX}_READY_FILE is not set"
    assert "--overlay" in found.left_out["overlay.json"]
    assert json.loads(found.files["doctor.json"])["facts"]["engine"]["worker"] is None


def test_figures_that_cannot_be_exported_are_told(site: Site) -> None:
    stats = {"counters": {"rounds": "x"}, "latency": {}, "acceptance": {"by_context": 5, "accepted": [1]}}
    (site.folder / "stats.json").write_text(json.dumps(stats | {"breaker": []}))
    found = collect(Asked(site.environ), site.host, site.asks)
    kept = json.loads(found.files["stats.json"])["stats"]
    assert kept["left_out"] == 1
    assert kept["acceptance"] == {"left_out": 2}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(PROMPT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([PROMPT, "state"]), inner),
    max_leaves=8,
)
SECTIONS = (
    "counters",
    "latency",
    "shadow",
    "worker",
    "breaker",
    "n_out_by_reqs",
    "memory",
    "acceptance",
    PROMPT,
)


@given(st.dictionaries(st.sampled_from(SECTIONS), VALUES))
def test_whatever_a_stats_file_or_a_manifest_holds_its_texts_stay_here(data: dict[str, Any]) -> None:
    for keep in (STATS, MANIFEST):
        assert PROMPT not in json.dumps(keep(data))


# --- the archive ---


def opened(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        found = {}
        for entry in tar.getmembers():
            assert (entry.mode, entry.uid, entry.gid, entry.uname) == (0o600, 0, 0, "")
            file = tar.extractfile(entry)
            assert file is not None
            found[entry.name] = file.read()
        return found


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith((PREFIX, "VLLM_PLUGINS", "CUDA_MODULE_LOADING")):
            monkeypatch.delenv(name)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["support-bundle", "--offline", *arguments])


def test_the_command_writes_an_archive_whose_manifest_lists_all_with_digests(
    clean: None, tmp_path: Path
) -> None:
    output, log = tmp_path / "bundle.tar.gz", tmp_path / "engine.log"
    poisoned_log(log)
    result = run("--output", str(output), "--log", str(log), "--log-lines", "5")
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    files = opened(output)
    manifest = json.loads(files.pop("support-bundle/manifest.json"))
    listed = {f"support-bundle/{one['name']}": one for one in manifest["files"]}
    assert set(listed) == set(files)
    for name, data in files.items():
        assert listed[name]["sha256"] == hashlib.sha256(data).hexdigest()
        assert listed[name]["bytes"] == len(data)
    assert manifest["left_out"]["logs/1.log"].endswith("of the last 5 lines")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    raw = gzip.decompress(output.read_bytes()).decode("utf-8", "replace")
    for planted in PLANTED:
        assert planted not in raw


def test_an_archive_that_is_there_is_replaced_only_by_force(clean: None, tmp_path: Path) -> None:
    output = tmp_path / "bundle.tar.gz"
    output.write_text("mine")
    result = run("--output", str(output))
    assert result.exit_code == 2
    assert "is there already: --force replaces it" in result.output
    assert output.read_text() == "mine"
    assert run("--output", str(output), "--force").exit_code == 0
    assert "support-bundle/doctor.json" in opened(output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--output", "/absent/b.tar.gz"], "/absent/b.tar.gz cannot be written"),
        (["--output", "b", "--log", "/absent.log"], "/absent.log cannot be read"),
        (["--log-lines", "0", "--output", "b"], "--log-lines"),
        ([], "--output"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    clean: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_text("mine")
    with pytest.raises(OutputError, match="is there already"):
        put(path, b"theirs", force=False)
    assert path.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        put(tmp_path / "b", b"x", force=True)
    assert list(tmp_path.iterdir()) == []


def test_one_content_is_one_archive() -> None:
    files = {"a": b"1", "b": b"2"}
    assert archive(files, 5) == archive(dict(files), 5)
    assert json.loads(manifest_of(files, {}))["files"][0]["name"] == "a"
