"""Doctor on an engine's host: what is really asked, the command, its page, and what never leaves in a fact."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from doctor_engine import IDENTITY, MARKOV, Site, site_in
from ofl.doctor import report
from ofl.documents import rewritten
from spark_overlay.cli import main
from spark_overlay.docs import parts
from spark_overlay.doctor import asks as real
from spark_overlay.settings import PREFIX, Settings

DOCS = Path(__file__).parents[4] / "docs/operations"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_in(tmp_path)


# --- what is really asked ---


def test_the_real_environment_has_the_plugin_and_no_engine() -> None:
    assert real.plugin_seen()
    assert real.engine_version() == ""
    assert "not found on the path" in real.bound_file("0.33.0").sentence


def test_the_engines_file_is_looked_up_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "vllm"
    folder = package / "v1/worker/gpu/spec_decode"
    folder.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "__init__.py").write_text("# not the release's own\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = real.bound_file("0.33.0")
    assert (found.path, found.state) == (str(folder / "__init__.py"), "other")
    assert "sha256" in found.sentence
    (folder / "__init__.py").unlink()
    assert real.bound_file("0.33.0").path == ""


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    assert real.write_fault(tmp_path / "stats.json") == ""
    assert "cannot be written" in real.write_fault(tmp_path / "absent" / "stats.json")


@pytest.mark.parametrize("with_key", [False, True])
def test_a_worker_that_is_not_there_is_unreachable_within_the_time(tmp_path: Path, with_key: bool) -> None:
    environ = {
        PREFIX: "tcp://127.0.0.1:1",
        f"{PREFIX}_IDENTITY": IDENTITY,
        f"{PREFIX}_MARKOV_IDENTITY": MARKOV,
    }
    if with_key:
        (tmp_path / "key").write_text("k" * 64)
        (tmp_path / "key").chmod(0o600)
        environ[f"{PREFIX}_KEY_FILE"] = str(tmp_path / "key")
    settings = Settings.from_environ(environ)
    assert settings is not None
    found = real.ask_worker(settings, 2.0)
    assert found["exit_status"] == 3
    assert found["error"]


# --- the command and the page ---


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith((PREFIX, "VLLM_PLUGINS", "CUDA_MODULE_LOADING")):
            monkeypatch.delenv(name)


def test_the_command_prints_findings_with_one_exit_status(clean: None) -> None:
    result = CliRunner().invoke(main, ["doctor", "--offline"])
    assert result.exit_code == 1
    assert "FAIL  settings-given" in result.output
    assert f"repair: export {PREFIX}=" in result.output
    assert result.output.splitlines()[-1].endswith("something must be repaired")


def test_the_command_prints_json_that_another_host_reads(clean: None, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--offline", "--json"])
    document = json.loads(result.output)
    assert document["command"] == "spark-overlay doctor"
    assert document["facts"]["role"] == "engine"
    path = tmp_path / "peer.json"
    path.write_text(result.output)
    result = CliRunner().invoke(main, ["doctor", "--offline", "--peer", str(path)])
    assert "PASS  peer-versions" in result.output


def site_file(folder: Path) -> Path:
    """A deployment as `launch` takes it."""
    (folder / "drafter").mkdir()
    (folder / "drafter/config.json").write_text("{}")
    (folder / "drafter/model.safetensors").write_bytes(b"")
    (folder / "identity.json").write_text(json.dumps({"identity": IDENTITY, "markov_identity": MARKOV}))
    path = folder / "site.toml"
    path.write_text(
        f'target = "/models/target"\ndrafter = "{folder}/drafter"\nworker = "tcp://127.0.0.1:9"\n'
        f'identity_file = "{folder}/identity.json"\nvllm_version = "0.32.0"\n'
    )
    return path


def results(*arguments: str) -> dict[str, str]:
    """Results by check, as the command prints them."""
    result = CliRunner().invoke(main, ["doctor", "--offline", "--json", *arguments])
    return {one["check"]: one["result"] for one in json.loads(result.stdout)["findings"]}


def test_a_config_is_examined_as_launch_would_start_it(
    clean: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What some shell exported for another engine does not count."""
    monkeypatch.setenv(f"{PREFIX}_POLIZY", "x")
    site = str(site_file(tmp_path))
    identity = ["--identity-file", str(tmp_path / "identity.json")]
    found = results("--config", "C-capacity", "--site", site, *identity)
    for name in ("settings-given", "setting-names", "settings", "identity", "speculative-config"):
        assert found[name] == "PASS"
    found = results("--config", "A-local", "--site", site)
    assert found["settings-given"] == "SKIP"
    assert found["speculative-config"] == "PASS"


def test_a_config_that_cannot_be_launched_is_refused_as_launch_refuses_it(
    clean: None, tmp_path: Path
) -> None:
    site = str(site_file(tmp_path))
    given = ["doctor", "--config", "C-capacity", "--site", site, "--set", "worker=quic://w:1"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    assert "worker" in result.output
    result = CliRunner().invoke(main, ["doctor", "--site", site])
    assert result.exit_code == 2
    assert "need --config" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--identity-file", "/absent/identity.json"],
            "--identity-file: /absent/identity.json cannot be read",
        ),
        (["--peer", "/absent/peer.json"], "--peer: /absent/peer.json cannot be read"),
        (["--timeout-s", "nan"], "--timeout-s"),
        (["--rank", "-1"], "--rank"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(clean: None, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["doctor", "--offline", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_the_page_has_the_tables_of_all_checks() -> None:
    text = (DOCS / "doctor.md").read_text(encoding="utf-8")
    assert rewritten(text, parts()["doctor.md"]) == text


def test_no_fact_holds_the_content_of_the_key_or_a_strange_variable(site: Site) -> None:
    (site.folder / "key").write_text("s3cr3t-" * 8)
    site.environ |= {"HF_TOKEN": "hf_secret", "VLLM_API_KEY": "api_secret"}
    findings = site.examine()
    text = json.dumps(report.document("spark-overlay doctor", site.facts, findings))
    for secret in ("s3cr3t", "hf_secret", "api_secret"):
        assert secret not in text
