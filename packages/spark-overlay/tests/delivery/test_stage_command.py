"""The command line of staging: a table or JSON, a sentence for each host that failed, one exit status."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from spark_overlay.cli import main as command
from staging_rig import Fars

Write = Callable[..., Path]


@pytest.fixture
def run(fars: Fars) -> Callable[..., Result]:
    """Runs `spark-overlay stage` over the stand-in for ssh, to hosts `one` and `two` unless it is told others."""
    for name in ("one", "two"):
        fars.add(name)

    def stage(*words: str, to: tuple[str, ...] = ("one:opt", "two:opt")) -> Result:
        destinations = [word for one in to for word in ("--to", one)]
        return CliRunner().invoke(command, ["stage", "--rsh", str(fars.ssh), *destinations, *words])

    return stage


def test_a_stage_is_copied_checked_switched_and_rolled_back(
    run: Callable[..., Result], source: Write
) -> None:
    folder = source()
    assert run(f"x={folder}").exit_code == 0
    done = run(f"x={source(**{'a.txt': 'new'})}", "--json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["status"] == 0
    assert [one["destination"] for one in answer["hosts"]] == ["one:opt", "two:opt"]
    assert {one["sentence"] for one in answer["hosts"]} == {"copied, verified; current now"}
    checked = run("--check", f"x={folder}")
    assert (checked.exit_code, checked.stderr) == (0, "")
    for word in ("one:opt", "two:opt", answer["hosts"][0]["stage"][:12], "verified"):
        assert word in checked.stdout
    back = json.loads(run("--rollback", "--json").stdout)
    assert back["hosts"][0]["stage"] != answer["hosts"][0]["stage"]
    again = run("--check", f"x={folder}")
    assert again.exit_code == 5
    assert again.stderr.count(f"another stage is current, not {answer['hosts'][0]['stage']}\n") == 2
    assert run("--rollback").exit_code == 6


def test_the_exit_status_is_the_worst_hosts_and_each_failure_is_a_line(
    run: Callable[..., Result], source: Write, fars: Fars
) -> None:
    fars.program("two", "tar", "exit 2")
    done = run(f"x={source()}", to=("gone:/opt", "one:opt", "two:opt"))
    assert done.exit_code == 4
    assert done.stderr.splitlines() == [
        "spark-overlay: gone:/opt: it cannot be reached: ssh: Could not resolve hostname gone",
        "spark-overlay: two:opt: it could not be copied: it said nothing",
    ]
    assert run(f"x={source()}", to=("gone:/opt",)).exit_code == 3


def test_a_manifest_says_all_and_the_command_line_says_it_first(
    run: Callable[..., Result], source: Write, tmp_path: Path, fars: Fars
) -> None:
    source()
    manifest = tmp_path / "stage.toml"
    manifest.write_text('to = ["one:from-manifest"]\nkeep = 1\n[[item]]\nplace = "x"\nsource = "source"\n')
    for text in ("1", "2"):
        source(**{"a.txt": text})
        assert run("--manifest", str(manifest), to=()).exit_code == 0
    folder = fars.folder / "one/from-manifest"
    assert (folder / "current/x/a.txt").read_text() == "2"
    assert len(list((folder / "stages").iterdir())) == 1
    source(**{"a.txt": "3"})
    assert (
        run("--manifest", str(manifest), f"y={tmp_path / 'source'}", "--keep", "2", to=("two:opt",)).exit_code
        == 0
    )
    assert (fars.folder / "two/opt/current/y/a.txt").read_text() == "3"
    assert (folder / "current/x/a.txt").read_text() == "2"


@pytest.mark.parametrize(
    ("words", "to", "sentence"),
    [
        ([], (), "--to: HOST:DIR is needed, or DIR on this host"),
        ([], ("one:opt", "one:opt"), "--to: one:opt is named twice"),
        ([], ("one:opt", "one:opt//./"), "--to: one:opt is named twice"),
        ([], ("-x:opt",), "--to: '-x:opt': '-x' is no name of a host"),
        ([], ("one:opt",), "there is nothing to stage: name --manifest, or PLACE=SOURCE"),
        (["--check", "--rollback"], ("one:opt",), "--check and --rollback exclude each other"),
        (["--rsh", ""], ("one:opt",), "--rsh: a command is needed, such as 'ssh -p 2222'"),
        (
            ["--manifest", "/no/such.toml"],
            ("one:opt",),
            "/no/such.toml cannot be read: No such file or directory",
        ),
        (["a=/no/such"], ("one:opt",), "/no/such cannot be read: No such file or directory"),
        (["a"], ("one:opt",), "'a': PLACE=SOURCE is needed, as in wheels/a.whl=dist/a.whl"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_no_host_is_asked(
    run: Callable[..., Result], words: list[str], to: tuple[str, ...], sentence: str, fars: Fars
) -> None:
    for name in ("one", "two"):
        (fars.folder / name / "before").write_text(f": > {fars.folder}/asked\n")
    done = run(*words, to=to)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"spark-overlay: {sentence}\n")
    assert not (fars.folder / "asked").exists()


@pytest.mark.parametrize("words", [["--timeout-s", "nan"], ["--timeout-s", "0"], ["--keep", "0"]])
def test_numbers_out_of_range_are_refused_by_the_options_name(
    run: Callable[..., Result], words: list[str]
) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert words[0] in done.stderr
