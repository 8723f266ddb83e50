"""What an operator reads before launching: the shipped configs, the schemas, and the unit."""

import configparser
import json
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from spark_overlay.cli import main
from spark_overlay.launch import NOT_READY_STATUS, USAGE_STATUS
from spark_overlay.launch_command import launch
from spark_overlay.launching import schema
from spark_overlay.launching.layers import shipped
from spark_overlay.launching.names import TABLE_KEYS, TABLES_ELSEWHERE, key_of
from spark_overlay.launching.unit import unit

ROOT = Path(__file__).parents[4]
PUBLISHED = ROOT / "docs" / "operations"
VERIFIER = shutil.which("systemd-analyze")


def published(name: str) -> Any:
    return json.loads((PUBLISHED / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", schema.MODELS)
def test_the_published_schemas_are_the_models_own(name: str) -> None:
    told = "run: python -m spark_overlay.launching.schema docs/operations"
    assert (PUBLISHED / f"{name}.schema.json").read_text(encoding="utf-8") == schema.text(name), told


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_config_but_that_of_what_is_not_built_fits_the_published_schema(name: str) -> None:
    validator = jsonschema.Draft202012Validator(published("launch-config"))
    wrong = [error.json_path for error in validator.iter_errors(tomllib.loads(shipped()[name]))]
    properties = published("launch-config")["properties"]["remote"]["properties"]
    assert wrong == (["$.remote"] if name == "C-capacity-async" and "async" not in properties else [])


def test_the_example_site_fits_the_published_schema_and_a_misspelt_one_does_not() -> None:
    site = tomllib.loads((ROOT / "examples/launch/site.toml").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(published("launch-site"))
    assert list(validator.iter_errors(site)) == []
    assert list(validator.iter_errors(site | {"prot": 1}))
    assert list(validator.iter_errors(site | {"remote": {"timout_ms": 1}}))


def test_the_keys_of_tables_are_the_settings_of_the_tables() -> None:
    settings = pytest.importorskip("engram_remote.settings")
    known = {
        key_of(str(field.alias), settings.PREFIX) or "servers"
        for field in settings.Settings.model_fields.values()
    }
    assert set(TABLE_KEYS) | set(TABLES_ELSEWHERE) == known


def test_the_list_says_what_each_config_is_for() -> None:
    done = CliRunner().invoke(main, ["configs"])
    assert done.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(lines) == set(shipped())
    assert lines["C-resilience"] == "remote drafts, and the local drafter for rounds that fail"


def test_a_config_is_printed_with_what_it_extends() -> None:
    done = CliRunner().invoke(main, ["configs", "C-shadow-remote"])
    assert done.exit_code == 0
    heads = [line for line in done.stdout.splitlines() if line.startswith("# --- ")]
    assert heads == ["# --- A-local.toml", "# --- C-shadow.toml", "# --- C-shadow-remote.toml"]
    assert 'shadow_use = "remote"' in done.stdout


def test_a_config_that_is_not_there_is_one_sentence() -> None:
    done = CliRunner().invoke(main, ["configs", "C-shadw"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "spark-overlay: NAME: no config 'C-shadw' is shipped; did you mean C-shadow?\n"


def service(text: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


def test_the_unit_waits_for_readiness_and_asks_for_options_that_exist() -> None:
    found = service(unit(Path("/nowhere")))
    assert (found["Type"], found["NotifyAccess"], found["KillMode"]) == ("notify", "main", "mixed")
    assert found["RestartPreventExitStatus"] == str(USAGE_STATUS)
    assert found["RestartPreventExitStatus"] != str(NOT_READY_STATUS), "another start may find it ready"
    words = shlex.split(found["ExecStart"])
    assert words[:3] == ["/usr/bin/env", "spark-overlay", "launch"]
    known = {option for parameter in launch.params for option in parameter.opts}
    used = {word for word in words if word.startswith("--")}
    assert used == {"--config", "--site"}
    assert used | {"--rank"} <= known


def test_the_unit_of_an_installation_names_its_command_and_looks_for_the_engines_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-overlay").write_text("")
    found = service(unit(tmp_path))
    assert found["ExecStart"].startswith(f"{tmp_path}/bin/spark-overlay launch --config ")
    assert found["Environment"].startswith(f"PATH={tmp_path}/bin:")


def test_the_unit_command_prints_the_unit_or_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["unit"])
    assert (printed.exit_code, printed.stdout) == (0, unit(Path(sys.prefix)))
    done = CliRunner().invoke(main, ["unit", "--output", str(tmp_path)])
    assert done.exit_code == 0
    assert (tmp_path / "spark-engine.service").read_text() == printed.stdout
    assert "/etc/default/spark-engine" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spark-engine.service").mkdir()
    done = CliRunner().invoke(main, ["unit", "--output", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr == f"spark-overlay: --output: {tmp_path} cannot be written to: Is a directory\n"


@pytest.mark.skipif(VERIFIER is None, reason="no systemd-analyze here")
def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert VERIFIER is not None
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "spark-overlay"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    path = tmp_path / "spark-engine.service"
    path.write_text(unit(tmp_path))
    done = subprocess.run(
        [VERIFIER, "verify", str(path)], check=False, capture_output=True, text=True, timeout=60
    )
    told = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, told) == (0, []), done.stderr
