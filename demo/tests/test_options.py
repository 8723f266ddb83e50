"""Options are judged before anything is installed; each refusal is one sentence that names the option."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo.options import FROM, PROMPT_BYTES_MAX, parse

ROOT = Path(__file__).parents[2]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--prompt", "  "], "--prompt"),
        (["--prompt", "caf\udce9"], "--prompt: the text is not valid UTF-8"),
        (["--prompt", "x" * (PROMPT_BYTES_MAX + 1)], "--prompt"),
        (["--tokens", "15"], "--tokens"),
        (["--tokens", "many"], "--tokens"),
        (["--drill", "--drill-round", "0"], "--drill-round"),
        (["--drill-round", "5"], "--drill"),
        (["--drill", "--tokens", "30"], "--tokens: it means nothing with --drill"),
        (["--engine", "sim", "--drill", "--tokens", "256"], "--tokens: it means nothing with --drill"),
        (["--deadline-ms", "0"], "--deadline-ms"),
        (["--port", "80"], "--port"),
        (["--json", "/nowhere/at/all.json"], "--json"),
        (["--json", "/proc"], "--json"),
        (["--engine", "real"], "--engine"),
        (["--engine", "sim", "--port", "18620"], "--port"),
        (["--engine", "sim", "--tokens", "15"], "--tokens"),
        (["--drll"], "--drll"),
        (["--engram", "--drill"], "--drill: it means nothing with --engram"),
        (["--engram", "--engine", "sim"], "--engine: it means nothing with --engram"),
        (["--engram", "--prompt", "text"], "--prompt: it means nothing with --engram"),
        (["--engram", "--table-rows", "99999"], "--table-rows"),
        (["--table-rows", "100000"], "--table-rows: it means nothing without --engram"),
        (["stray"], "stray"),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_it(
    arguments: list[str], names: str, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    port = [] if {"--port", "sim", "--engram"} & set(arguments) else ["--port", str(free_port)]
    with pytest.raises(SystemExit) as stop:
        parse([*arguments, *port])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.count("\n") == 1
    assert said.startswith("demo: ")
    assert names in said


def test_the_tables_need_no_engine_and_no_port() -> None:
    options = parse(["--engram", "--check"])
    assert (options.environment, options.engram, options.table_rows) == ("sim", True, 400_000)


def test_a_relative_json_file_lies_where_the_caller_is(
    free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FROM, str(tmp_path))
    assert parse(["--json", "out.json", "--port", str(free_port)]).json_file == tmp_path / "out.json"
    with pytest.raises(SystemExit):
        parse(["--json", "missing/out.json", "--port", str(free_port)])


def test_run_tells_the_demo_where_it_was_called_from(tmp_path: Path, free_port: int) -> None:
    command = [str(ROOT / "run"), "demo", "--json", "missing/out.json", "--port", str(free_port)]
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=30, check=False
    )
    said = f"demo: --json: {tmp_path / 'missing'} is not a folder that can be written to.\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_busy_port_is_refused_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(SystemExit):
            parse(["--port", str(port)])
    assert f"{port} on 127.0.0.1 cannot be used: address already in use" in capsys.readouterr().err


def test_good_options_come_out_as_they_went_in(free_port: int, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    options = parse(["--prompt", "def f():", "--json", str(file), "--port", str(free_port), "--tokens", "32"])
    assert (options.prompt, options.drill, options.json_file, options.port, options.tokens) == (
        "def f():",
        False,
        file,
        free_port,
        32,
    )
    drill = parse(["--drill", "--drill-round", "7", "--port", str(free_port)])
    assert (drill.drill, drill.drill_round) == (True, 7)
    assert parse(["--port", str(free_port)]).tokens == 256


def test_the_simulated_engine_needs_no_port() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        assert parse(["--engine", "sim"]).engine == "sim"
    assert parse(["--engine", "sim"]).deadline_ms == 500


def test_the_check_needs_nothing_but_the_standard_library(free_port: int) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; "
        f"sys.argv = ['demo', '--check', '--port', '{free_port}']; runpy.run_module('demo', run_name='__main__')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "vllm\n", "")
