"""Doctor on an engine's host: what is planted is found by one check alone, which names the repair."""

import ast
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import spark_overlay
from doctor_engine import ENDPOINT, IDENTITY, MARKOV, Site, Worker, asking, shape, site_in
from ofl.doctor import report
from ofl.doctor.findings import BROKEN, Result, exit_status
from ofl.doctor.simulated import NOW_S
from spark_overlay.doctor.asks import BoundFile
from spark_overlay.doctor.gather import (
    ALIKE,
    ENGINE_ALIKE,
    IdentityFileError,
    known_settings,
    read_identities,
    speculative,
)
from spark_overlay.settings import PREFIX, Settings
from spark_overlay.vllm_seam.depth import decisive_costs

OTHER = "ef" * 32


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_in(tmp_path)


def test_on_a_healthy_host_nothing_is_found(site: Site) -> None:
    findings = site.examine()
    assert [found for found in findings if found.result in (Result.FAIL, Result.WARN)] == []
    assert exit_status(findings) == 0
    worker = next(found for found in findings if found.check == "worker")
    assert worker.result is Result.PASS
    assert "would serve this engine" in worker.seen


Plant = Callable[[Site], None]


def env(**values: str | None) -> Plant:
    """Settings by the last parts of their names, other variables by their whole ones; None: unset."""

    def plant(site: Site) -> None:
        for name, value in values.items():
            full = PREFIX + name if name.startswith("_") else name
            site.environ.pop(full, None)
            if value is not None:
                site.environ[full] = value

    return plant


def asks(**changes: object) -> Plant:
    def plant(site: Site) -> None:
        site.asks = replace(site.asks, **changes)  # type: ignore[arg-type]

    return plant


def command(*words: str) -> Plant:
    def plant(site: Site) -> None:
        site.command = words

    return plant


def identity_of_another(site: Site) -> None:
    (site.folder / "identity.json").write_text(json.dumps({"identity": OTHER, "markov_identity": MARKOV}))


def open_key(site: Site) -> None:
    (site.folder / "key").chmod(0o640)


def no_folder(site: Site) -> None:
    site.environ[f"{PREFIX}_STATS_FILE"] = str(site.folder / "absent" / "stats.json")


def overlay_and_plugin(site: Site) -> None:
    site.asks = replace(site.asks, bound_file=lambda version: BoundFile("/x", "overlay", "/x is the overlay"))


def two_ranks(policy: str) -> Plant:
    def plant(site: Site) -> None:
        site.environ[f"{PREFIX}_POLICY"] = policy
        findings = site.examine()
        path = site.folder / "rank1.json"
        facts = site.facts | {"host": "spark-2", "endpoint": None, "links": []}
        path.write_text(json.dumps(report.document("spark-overlay doctor", facts, findings)))
        os.utime(path, (NOW_S, NOW_S))
        site.peers = (path,)
        site.environ[f"{PREFIX}_POLICY"] = "capacity"

    return plant


PLANTED: dict[str, tuple[Plant, str, tuple[str, ...]]] = {
    "a misspelt setting": (
        env(_POLIZY="shadow"),
        "setting-names",
        (f"unset {PREFIX}_POLIZY", f"export {PREFIX}_POLICY"),
    ),
    "a setting that is like none": (env(_ZZZZZZZZZZZZZZZ="1"), "setting-names", (f"unset {PREFIX}_ZZZZZZ",)),
    "a setting that is not built": (env(_OFL_DIR="/x"), "setting-names", (f"unset {PREFIX}_OFL_DIR",)),
    "a value out of range": (
        env(_TIMEOUT_MS="0"),
        "settings",
        (f"export {PREFIX}_TIMEOUT_MS=", "above 0 is needed"),
    ),
    "the drafter of another identity.json": (
        identity_of_another,
        "identity",
        (f"export {PREFIX}_IDENTITY={OTHER}",),
    ),
    "plugins that leave ours out": (
        env(VLLM_PLUGINS="lora_resolver"),
        "plugin-allowlist",
        ("export VLLM_PLUGINS=lora_resolver,spark_overlay",),
    ),
    "an empty list of plugins": (
        env(VLLM_PLUGINS=""),
        "plugin-allowlist",
        ("VLLM_PLUGINS=spark_overlay",),
    ),
    "a plugin that the engine does not see": (
        asks(plugin_seen=lambda: False),
        "plugin-entry-point",
        ("pip install --force-reinstall --no-deps spark-overlay",),
    ),
    "no engine": (asks(engine_version=lambda: ""), "engine-version", ("environment",)),
    "an engine that is not supported": (
        asks(engine_version=lambda: "0.31.0"),
        "engine-version",
        ("0.30.0, 0.32.0, 0.33.0", "pip install vllm==0.33.0"),
    ),
    "a file of the engine's that was changed": (
        asks(bound_file=lambda version: BoundFile("/x", "other", "/x is not the file of vLLM 0.33.0")),
        "engine-file",
        ("vllm==0.33.0",),
    ),
    "an overlay beside the plugin": (overlay_and_plugin, "engine-file", ("take the mount", "pip uninstall")),
    "a command without drafting": (
        command("vllm", "serve", "model"),
        "speculative-config",
        ('"method": "dspark"',),
    ),
    "a command that drafts otherwise": (
        command("vllm", "serve", "m", '--speculative-config={"method": "eagle"}'),
        "speculative-config",
        ('"method": "dspark"',),
    ),
    "a command whose drafting cannot be read": (
        command("vllm", "serve", "m", "--speculative-config", "{method: dspark}"),
        "speculative-config",
        ('"method": "dspark"',),
    ),
    "module loading that CUDA does not know": (
        env(CUDA_MODULE_LOADING="EAGERLY"),
        "module-loading",
        ("DEFAULT, LAZY, EAGER",),
    ),
    "a stats file without a folder": (no_folder, "written-files", ("mkdir -p", f"{PREFIX}_STATS_FILE")),
    "a folder that cannot be written": (
        asks(
            write_fault=lambda path: "/run cannot be written by user 5" if path.name == "ready.json" else ""
        ),
        "written-files",
        ("chown", f"{PREFIX}_READY_FILE"),
    ),
    "a key that others may read": (open_key, "key-file", ("chmod 600",)),
    "a worker of another drafter": (
        asks(ask_worker=asking(Worker(shape(OTHER)))),
        "worker",
        (f"export {PREFIX}_IDENTITY={OTHER}", ENDPOINT),
    ),
    "a worker that refuses the connection": (
        asks(ask_worker=asking(None)),
        "worker",
        ("x86-worker serve --listen rdma://10.77.0.1:18620",),
    ),
    "a worker with another key": (
        asks(
            ask_worker=lambda *_: {
                "exit_status": 3,
                "error": f"{ENDPOINT}: 10.77.0.1:18620 refused: the proof is wrong",
            }
        ),
        "worker",
        (f"{PREFIX}_KEY_FILE=", "x86-worker serve --key-file"),
    ),
    "another policy on the other rank": (
        two_ranks("shadow"),
        "peer-settings",
        (f"export {PREFIX}_POLICY=capacity on spark-2",),
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


def test_without_the_switch_the_engine_would_be_stock(site: Site) -> None:
    site.environ.pop(PREFIX)
    site.identity_file = None
    (found,) = site.wrong()
    assert found.check == "settings-given"
    assert f"export {PREFIX}=rdma://" in found.repair


def test_a_missing_identity_is_a_setting_that_must_be_set(site: Site) -> None:
    site.identity_file = None
    site.environ.pop(f"{PREFIX}_IDENTITY")
    (found,) = site.wrong()
    assert (found.check, found.result) == ("settings", Result.FAIL)
    assert found.repair == f"export {PREFIX}_IDENTITY=VALUE: it must be set."
    assert site.finding("route").result is Result.PASS, "the endpoint is judged all the same"


def test_asynchronous_rounds_need_modules_loaded_early(site: Site) -> None:
    site.environ[f"{PREFIX}_ASYNC"] = "1"
    assert site.finding("module-loading").repair == "export CUDA_MODULE_LOADING=EAGER"
    site.environ["CUDA_MODULE_LOADING"] = "EAGER"
    assert site.finding("module-loading").result is Result.PASS


def test_an_endpoint_that_is_none_is_a_setting_at_fault_and_no_link_is_judged(site: Site) -> None:
    site.environ[PREFIX] = "quic://w:1"
    (found,) = site.wrong()
    assert found.check == "settings"
    assert site.finding("route").result is site.finding("worker").result is Result.SKIP


def test_a_file_overlay_needs_no_plugin(site: Site) -> None:
    overlay_and_plugin(site)
    site.asks = replace(site.asks, plugin_seen=lambda: False)
    site.environ["VLLM_PLUGINS"] = "other"
    assert site.wrong() == []
    assert site.finding("plugin-allowlist").result is Result.SKIP


def test_offline_and_on_other_ranks_nobody_is_asked(site: Site) -> None:
    def never(*_: object) -> dict[str, object]:
        raise AssertionError("the worker was asked")

    site.asks = replace(site.asks, ask_worker=never)  # type: ignore[arg-type]
    site.timeout_s = 0.0
    assert "--offline" in site.finding("worker").seen
    assert site.finding("reachable").result is Result.SKIP
    site.timeout_s, site.rank = 1.0, 1
    assert "rank 0 alone" in site.finding("worker").seen
    assert site.finding("bind-address").result is Result.SKIP
    assert site.wrong() == []


def test_where_no_connection_comes_about_the_worker_is_not_judged_twice(site: Site) -> None:
    site.asks = replace(site.asks, ask_worker=asking(None))
    site.host = replace(site.host, connect_fault=lambda *_: "connection refused")
    (found,) = site.wrong()
    assert found.check == "reachable"


def test_locked_memory_must_hold_a_message_each_way(site: Site) -> None:
    """Two frames of 64 MiB and 8 MiB beside them: 136 MiB are 139264 KiB."""
    site.environ[f"{PREFIX}_FRAME_BYTES"] = str(64 << 20)
    site.host = replace(site.host, limits=lambda: {"memlock_bytes": 100 << 20})
    (found,) = site.wrong()
    assert found.check == "memlock"
    assert "ulimit -l 139264 " in found.repair


def test_the_settings_that_must_be_alike_are_those_that_the_seam_compares() -> None:
    source = Path(spark_overlay.__file__).parent / "vllm_seam/assembly.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (function,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "decisive"
    ]
    named = {
        f"{PREFIX}{part.value}"
        for node in ast.walk(function)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.startswith("_")
    }
    settings = Settings.from_environ(
        {PREFIX: ENDPOINT, f"{PREFIX}_IDENTITY": IDENTITY, f"{PREFIX}_MARKOV_IDENTITY": MARKOV}
    )
    assert settings is not None
    # The rest of what the seam compares are options of the engine's command, written in small letters.
    named |= {name for name in decisive_costs(None, settings, {}) if name.isupper()}
    assert {known_settings()[name] for name in ALIKE} | set(ENGINE_ALIKE) == named


def test_costs_that_all_ranks_must_have_alike_are_compared_by_value_and_told_as_they_are_exported(
    site: Site,
) -> None:
    site.environ |= {f"{PREFIX}_DRAFT_MS": "2.50", f"{PREFIX}_ROUND_MS": "30, 31"}
    site.environ |= {"VLLM_DSPARK_DEPTH_POLICY": "conf", "VLLM_DSPARK_DEPTH_FILE": ""}
    site.examine()
    assert site.facts["alike"] == {
        f"{PREFIX}_POLICY": "capacity",
        f"{PREFIX}_SHADOW_USE": "local",
        f"{PREFIX}_ON_FAIL": "draft-nothing",
        f"{PREFIX}_DRAFT_MS": "2.5",
        f"{PREFIX}_ROUND_MS": "30.0,31.0",
        "VLLM_DSPARK_DEPTH_POLICY": "conf",
    }


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (("--speculative-config", '{"method": "dspark"}'), "dspark"),
        (('--speculative_config={"method": "dspark"}',), "dspark"),
        (("-sc", '{"method": "eagle"}'), "eagle"),
        (("--speculative-config.method", "dspark"), "dspark"),
        (("--speculative-config.method=dspark",), "dspark"),
        (("--speculative-config", "{}"), ""),
        (("--max-num-seqs", "4"), ""),
    ],
)
def test_the_method_is_read_off_the_command_in_each_of_its_forms(words: tuple[str, ...], method: str) -> None:
    assert speculative(("vllm", "serve", *words)) == {"method": method, "fault": ""}


@pytest.mark.parametrize("words", [("-sc",), ("-sc", "[]"), ("-sc", "["), ("-sc", "[" * 100_000)])
def test_a_configuration_that_cannot_be_read_is_told(words: tuple[str, ...]) -> None:
    found = speculative(words)
    assert found is not None
    assert "JSON" in found["fault"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "identity: a sha256 digest"),
        ('{"identity": {"a": 1}, "markov_identity": ""}', "identity: a sha256 digest"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_identity_json_is_refused_by_name(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "identity.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(IdentityFileError, match=r"identity\.json") as refused:
        read_identities(path)
    assert words in str(refused.value)
