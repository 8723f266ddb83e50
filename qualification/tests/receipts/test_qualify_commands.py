"""The command as an operator has it: exit statuses, one line per reason, and nothing half done."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from qualification.commands import common
from qualification.commands import gate as gate_command
from qualification.receipts import payload
from qualification.receipts.keys import public_pem
from qualification.receipts.schema import MODELS, text
from qualification.subjects import SUBJECTS_FORMAT, SubjectsFile
from qualification.subjects import text as subjects_text
from receipt_corpus import sound
from receipt_corpus.bench import Bench

import qualification
from qualification import cli

POLICY = Path(__file__).parents[2] / "policies" / "overlay-version.toml"
Qualify = Callable[..., Result]


@pytest.fixture
def qualify(tmp_path: Path) -> Qualify:
    """Runs the command; paths may be given as they are."""
    (tmp_path / "pub.pem").write_bytes(public_pem(sound.PRIVATE_KEY))
    return lambda *words: CliRunner().invoke(cli.main, [str(word) for word in words])


@pytest.fixture
def bits(tmp_path: Path) -> Path:
    path = tmp_path / "subjects.json"
    path.write_text(subjects_text(SubjectsFile(format=SUBJECTS_FORMAT, subjects=sound.SUBJECTS)))
    return path


def test_help_names_every_command_that_is_there(qualify: Qualify) -> None:
    result = qualify("--help")
    assert result.exit_code == 0
    for name in ("keygen", "subjects", "sign", "verify", "gate", "schema"):
        assert f"\n  {name} " in result.output


def test_a_command_whose_module_is_not_there_is_not_listed(
    qualify: Qualify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "gate", "qualification.nowhere.gate")
    assert "\n  gate " not in qualify("--help").output
    assert qualify("gate").exit_code == 2
    assert qualify("dance").exit_code == 2


def test_every_command_bears_the_name_that_it_is_found_by() -> None:
    context = click.Context(cli.main)
    group = cli.main
    names = group.list_commands(context)
    assert len(names) >= 6
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_asking_for_help_imports_neither_plots_nor_pages() -> None:
    code = "import sys, qualification.cli; print(sorted({'matplotlib', 'jinja2', 'pydantic'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_the_version_is_that_of_the_distribution(qualify: Qualify) -> None:
    assert qualify("--version").output == f"qualify, version {qualification.__version__}\n"


def test_a_statement_is_signed_by_a_new_key_and_verifies(qualify: Qualify, tmp_path: Path) -> None:
    sound.write_files(tmp_path)
    (tmp_path / "statement.json").write_bytes(payload(sound.statements(sound.run_record())[0]))
    made = qualify("keygen", tmp_path / "keys")
    assert made.exit_code == 0
    private, public = tmp_path / "keys/qualify.key.pem", tmp_path / "keys/qualify.pub.pem"
    signed = qualify(
        "sign", tmp_path / "statement.json", "--key", private, "--out", tmp_path / "receipt.json"
    )
    assert signed.exit_code == 0, signed.output
    (signature,) = json.loads((tmp_path / "receipt.json").read_bytes())["signatures"]
    assert f"{signature['keyid']}: the id of both" in made.output
    result = qualify("verify", tmp_path / "receipt.json", "--key", public, "--evidence", tmp_path)
    assert result.exit_code == 0, result.output
    assert "alpha_passes: PASS, native, counter 41" in result.output
    assert "whether their runs are complete was not looked at" in result.output
    assert not list(tmp_path.glob(".*"))


def test_a_statement_that_lies_is_not_signed(qualify: Qualify, tmp_path: Path) -> None:
    data = payload(sound.statements(sound.run_record())[1]).replace(b'"verdict":"FAIL"', b'"verdict":"PASS"')
    (tmp_path / "statement.json").write_bytes(data)
    qualify("keygen", tmp_path)
    words = ("--key", tmp_path / "qualify.key.pem", "--out", tmp_path / "receipt.json")
    result = qualify("sign", tmp_path / "statement.json", *words)
    assert result.exit_code == 1
    assert "[verdict] verdict is PASS; FAIL follows" in result.stderr
    assert not (tmp_path / "receipt.json").exists()


def test_a_key_that_others_can_read_signs_nothing(qualify: Qualify, tmp_path: Path) -> None:
    (tmp_path / "statement.json").write_bytes(payload(sound.statements(sound.run_record())[0]))
    qualify("keygen", tmp_path)
    (tmp_path / "qualify.key.pem").chmod(0o644)
    words = ("--key", tmp_path / "qualify.key.pem", "--out", tmp_path / "receipt.json")
    result = qualify("sign", tmp_path / "statement.json", *words)
    assert result.exit_code == 2
    assert "a private key must be 0600" in result.stderr


def test_a_sound_run_verifies_also_as_one_of_a_folder(qualify: Qualify, bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "run.logs").mkdir()
    for path in (bench.root, tmp_path):
        result = qualify("verify", path, "--key", tmp_path / "pub.pem")
        assert result.exit_code == 0, result.output
        assert "run run-1: all 5 receipts and all evidence verify" in result.output


def test_everything_that_is_wrong_is_told_and_the_status_is_1(
    qualify: Qualify, bench: Bench, tmp_path: Path
) -> None:
    bench.predicate(1)["verdict"] = "PASS"
    bench.predicate(0)["coverage"]["passed"] = 7
    bench.publish()
    result = qualify("verify", bench.root, "--key", tmp_path / "pub.pem")
    assert result.exit_code == 1
    assert "[verdict]" in result.stderr
    assert "[coverage_sum]" in result.stderr
    assert result.stdout == ""


def test_a_killed_run_does_not_verify(qualify: Qualify, bench: Bench, tmp_path: Path) -> None:
    (bench.root / "complete.json").unlink()
    bench.root.rename(tmp_path / "run.partial")
    result = qualify("verify", tmp_path, "--key", tmp_path / "pub.pem")
    assert result.exit_code == 1
    assert "[incomplete]" in result.stderr


def test_a_folder_without_a_run_is_no_success(qualify: Qualify, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert qualify("verify", tmp_path / "empty", "--key", tmp_path / "pub.pem").exit_code == 2
    assert qualify("verify", tmp_path / "none", "--key", tmp_path / "pub.pem").exit_code == 2


def test_the_name_of_a_folder_that_verifies_is_told_on_one_line(
    qualify: Qualify, bench: Bench, tmp_path: Path
) -> None:
    root = bench.root.rename(tmp_path / "run\nall is well")
    result = qualify("verify", root, "--key", tmp_path / "pub.pem")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == len(bench.statements) + 1
    assert "run\\nall is well: run run-1: all 5 receipts" in result.stdout


def test_receipts_that_do_not_verify_are_all_told(qualify: Qualify, bench: Bench, tmp_path: Path) -> None:
    (bench.root / "observations/off-1-a-0.jsonl").unlink()
    paths = [bench.path(0), bench.path(1)]
    result = qualify("verify", *paths, "--key", tmp_path / "pub.pem", "--evidence", bench.root)
    assert result.exit_code == 1
    assert result.stderr.count("[evidence_missing]") == 2


@pytest.mark.parametrize("blind", ["verify_receipt", "verify_run"])
@pytest.mark.parametrize("command", ["verify", "gate", "review"])
def test_a_blind_verifier_judges_nothing(
    qualify: Qualify,
    bench: Bench,
    bits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    blind: str,
) -> None:
    monkeypatch.setattr(common, blind, lambda *anything: None)
    words: dict[str, tuple[Any, ...]] = {
        "verify": (bench.root,),
        "gate": ("--policy", POLICY, "--subjects", bits, "--evidence", bench.root),
        "review": (bench.root, "--out", tmp_path / "page.html"),
    }
    result = qualify(command, *words[command], "--key", tmp_path / "pub.pem")
    assert result.exit_code == 2
    assert "the verifier is blind" in result.stderr


def gate_words(bits: Path, evidence: Path, tmp_path: Path) -> tuple[Any, ...]:
    return (
        "gate",
        "--policy",
        POLICY,
        "--subjects",
        bits,
        "--evidence",
        evidence,
        "--key",
        tmp_path / "pub.pem",
    )


def test_the_gate_holds_with_a_line_for_each_missing_check(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path
) -> None:
    result = qualify(*gate_words(bits, bench.root, tmp_path))
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == "HOLD"
    assert "hold: no_local_drafter: no receipt" in lines
    assert (
        "hold: subjects: the policy requires a subject of kind overlay-file, and the subjects file has none"
        in lines
    )


def test_the_gate_says_the_same_as_json(qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path) -> None:
    result = qualify(*gate_words(bits, bench.root, tmp_path), "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["promote"] is False
    assert {"about": "no_local_drafter", "sentence": "no receipt"} in said["held"]
    assert len(said["checks"]) == 15


def test_the_gate_promotes_with_status_0(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qualification.gate import Judgement

    monkeypatch.setattr(
        gate_command, "judge_gate", lambda policy, *rest, **known: Judgement(policy.name, (), ())
    )
    result = qualify(*gate_words(bits, bench.root, tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "PROMOTE: nothing holds overlay-version"


def test_a_run_that_does_not_verify_holds_the_gate(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path
) -> None:
    (bench.root / "complete.json").unlink()
    result = qualify(*gate_words(bits, bench.root, tmp_path))
    assert result.exit_code == 1
    assert "hold: evidence: run/complete.json: [incomplete]" in result.stdout


@pytest.mark.parametrize(
    ("letters", "told"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\nPROMOTE: nothing holds overlay-version", r"\nPROMOTE: nothing holds overlay-version"),
        ("\x9b8m", r"\x9b8m"),
        ("\u202eSSAP", r"\u202eSSAP"),
        ("\udcff", r"\udcff"),
    ],
)
def test_names_of_files_say_nothing_to_a_terminal(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path, letters: str, told: str
) -> None:
    (bench.root / "receipts" / f"x{letters}").write_bytes(b"")
    page = tmp_path / "page.html"
    commands = [
        ("verify", bench.root, "--key", tmp_path / "pub.pem"),
        gate_words(bits, bench.root, tmp_path),
        ("review", bench.root, "--key", tmp_path / "pub.pem", "--out", page),
    ]
    said = [qualify(*words) for words in commands]
    assert [result.exit_code for result in said] == [1, 1, 0]
    for shown in (said[0].stderr, said[1].stdout, page.read_text()):
        assert f"run/receipts/x{told}" in shown
        assert letters not in shown


@pytest.mark.parametrize("option", ["--policy", "--subjects", "--evidence", "--key"])
def test_input_that_is_not_there_is_unusable(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path, option: str
) -> None:
    words = list(gate_words(bits, bench.root, tmp_path))
    words[words.index(option) + 1] = tmp_path / "none"
    result = qualify(*words)
    assert result.exit_code == 2
    assert str(tmp_path / "none") in result.stderr


def test_input_without_an_end_is_refused_after_as_much_as_may_be(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path
) -> None:
    for option in ("--policy", "--subjects"):
        words = list(gate_words(bits, bench.root, tmp_path))
        words[words.index(option) + 1] = "/dev/zero"
        result = qualify(*words)
        assert result.exit_code == 2
        assert re.search(r"/dev/zero.* more than (262144|4194304) bytes", result.stderr)
    key = ("--key", tmp_path / "pub.pem")
    result = qualify("verify", "/dev/zero", *key, "--evidence", bench.root)
    assert (result.exit_code, "[size]" in result.stderr) == (1, True)


def test_a_policy_of_an_unknown_check_is_unusable(
    qualify: Qualify, bench: Bench, bits: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.read_text().replace('"no_local_drafter"', '"no_drafter"'))
    words = list(gate_words(bits, bench.root, tmp_path))
    words[2] = tmp_path / "policy.toml"
    result = qualify(*words)
    assert result.exit_code == 2
    assert "required_checks names no_drafter, which is no check" in result.stderr


def test_subjects_are_written_and_told(qualify: Qualify, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"abc")
    out = tmp_path / "subjects.json"
    result = qualify(
        "subjects", "--out", out, "--wheel", tmp_path / "a.whl", "--engine-version", "vllm 0.33.0"
    )
    assert result.exit_code == 0, result.output
    assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  wheel:a.whl" in result.output
    assert [one["name"] for one in json.loads(out.read_text())["subjects"]] == [
        "engine:vllm 0.33.0",
        "wheel:a.whl",
    ]


def test_a_subject_that_is_not_there_writes_nothing(qualify: Qualify, tmp_path: Path) -> None:
    result = qualify("subjects", "--out", tmp_path / "subjects.json", "--wheel", tmp_path / "none.whl")
    assert result.exit_code == 2
    assert "none.whl is no file" in result.stderr
    assert not (tmp_path / "subjects.json").exists()


def test_schemas_are_printed_by_name(qualify: Qualify) -> None:
    assert qualify("schema").output.split() == sorted(MODELS)
    assert qualify("schema", "receipt").output == text("receipt")
    assert qualify("schema", "novel").exit_code == 2


def test_a_receipt_is_replaced_as_a_whole(qualify: Qualify, tmp_path: Path) -> None:
    """A folder in its place makes the rename fail after the new file was written."""
    (tmp_path / "statement.json").write_bytes(payload(sound.statements(sound.run_record())[0]))
    qualify("keygen", tmp_path)
    (tmp_path / "receipt.json").mkdir()
    words = ("--key", tmp_path / "qualify.key.pem", "--out", tmp_path / "receipt.json")
    assert qualify("sign", tmp_path / "statement.json", *words).exit_code == 2
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
