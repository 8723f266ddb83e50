"""A config and a site become one environment and one command, the same on every host but for what must differ."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from launch_rig import IDENTITY, MARKOV, Place, option, speculative
from spark_overlay.launching import formats
from spark_overlay.launching.layers import shipped
from spark_overlay.launching.render import Rendering
from spark_overlay.settings import Settings

TWO_HOSTS = 'tensor_parallel_size = 2\nhosts = ["10.0.1.1", "10.0.1.2"]\nhost = "10.0.1.1"\n'


@pytest.mark.parametrize(
    ("config", "policy", "use", "weights"),
    [
        ("C-shadow", "shadow", "local", True),
        ("C-shadow-remote", "shadow", "remote", True),
        ("C-capacity", "capacity", None, False),
        ("C-capacity-nodrop", "capacity", None, False),
        ("C-resilience", "resilience", None, True),
    ],
)
def test_a_shipped_config_sets_its_policy_and_nothing_that_an_engine_refuses(
    place: Place, config: str, policy: str, use: str | None, weights: bool
) -> None:
    found = place.printed(config=config)
    assert found["environment"].get("VLLM_DSPARK_REMOTE_SHADOW_USE") == use
    settings = Settings.from_environ(found["environment"])
    assert settings is not None
    assert (settings.policy, settings.endpoint) == (policy, "tcp://10.0.0.1:18620")
    assert (settings.identity, settings.markov_identity) == (IDENTITY, MARKOV)
    (place.drafter / "model.safetensors").unlink()
    assert bool(place.invoke("--print", config=config).exit_code) is weights


def test_the_command_is_the_engines_own_with_the_drafter_of_this_host(place: Place) -> None:
    command = place.printed()["command"]
    assert command[:3] == ["vllm", "serve", "/models/target"]
    assert speculative(command) == {
        "method": "dspark",
        "num_speculative_tokens": 5,
        "draft_sample_method": "greedy",
        "model": str(place.drafter),
    }
    assert command[-4:] == ["--host", "127.0.0.1", "--port", "8000"]


def test_local_drafting_has_nothing_of_ours_in_its_environment(place: Place) -> None:
    found = place.printed(config="A-local")
    assert found["environment"] == {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    assert speculative(found["command"])["method"] == "dspark"


def test_how_a_site_drafts_remotely_leaves_local_drafting_stock(place: Place) -> None:
    place.write("[remote]\ntimeout_ms = 60\n")
    assert place.printed(config="A-local")["environment"] == {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    assert place.printed(config="C-capacity")["environment"]["VLLM_DSPARK_REMOTE_TIMEOUT_MS"] == "60"


def test_nodrop_differs_from_capacity_in_the_drop_alone(place: Place) -> None:
    with_drop, without = place.printed(), place.printed(config="C-capacity-nodrop")
    assert without["environment"] == with_drop["environment"]
    dropped = speculative(without["command"])
    assert dropped.pop("disable_eagle_block_drop") is True
    assert dropped == speculative(with_drop["command"])


def test_a_later_layer_replaces_key_by_key_and_the_site_comes_after_the_config(place: Place) -> None:
    place.config("[remote]\ntimeout_ms = 60\ntrip = 5\ncooldown = 100\n", "base.toml")
    own = place.config(
        'extends = "base.toml"\n[remote]\ntrip = 6\ncooldown = 200\n[speculative]\nmethod = "dspark"\n'
    )
    place.write("[remote]\ncooldown = 300\n")
    found = place.printed("--set", "remote.log_every=7", config=str(own))["environment"]
    values = [found[f"VLLM_DSPARK_REMOTE_{name}"] for name in ("TIMEOUT_MS", "TRIP", "COOLDOWN", "LOG_EVERY")]
    assert values == ["60", "6", "300", "7"]


def test_switches_numbers_lists_and_tables_become_what_the_engine_reads(place: Place) -> None:
    place.write(
        "[engine]\nenforce-eager = true\nenable-prefix-caching = false\nmax-model-len = 4096\n"
        'served-model-name = ["a", "b"]\ncompilation-config = { level = 3 }\n[remote]\nn_out = false\n'
        '[environment]\nNCCL_DEBUG = "WARN"\nOMP_NUM_THREADS = 1\nON = true\n'
    )
    found = place.printed("--", "--seed", "7")
    command = found["command"]
    assert {"--enforce-eager", "--no-enable-prefix-caching"} <= set(command)
    assert option(command, "--max-model-len") == "4096"
    assert command[command.index("--served-model-name") :][1:3] == ["a", "b"]
    assert json.loads(option(command, "--compilation-config")) == {"level": 3}
    assert command[-2:] == ["--seed", "7"]
    environment = found["environment"]
    assert [environment[name] for name in ("NCCL_DEBUG", "OMP_NUM_THREADS", "ON")] == ["WARN", "1", "1"]
    assert environment["VLLM_DSPARK_REMOTE_N_OUT"] == "0"


def test_set_takes_the_place_of_the_sites_value_whatever_its_kind(place: Place) -> None:
    place.write(TWO_HOSTS)
    found = place.printed(
        *("--set", "port=9000", "--set", "hosts=10.0.2.1,10.0.2.2", "--set", "engine.enforce-eager=true"),
        *("--set", "speculative.num_speculative_tokens=3", "--set", 'engine.served-model-name=["x"]'),
        *("--set", "engine.dtype=bfloat16", "--set", "engine.revision=2024-01-01", "--rank", "0"),
    )["command"]
    assert option(found, "--revision") == "2024-01-01", "which is a date to TOML alone"
    assert (option(found, "--port"), option(found, "--master-addr")) == ("9000", "10.0.2.1")
    assert speculative(found)["num_speculative_tokens"] == 3
    assert (option(found, "--served-model-name"), option(found, "--dtype")) == ("x", "bfloat16")


def test_two_hosts_have_the_same_settings_and_differ_in_who_they_are_alone(place: Place) -> None:
    place.write(TWO_HOSTS + "[engine]\nmax-model-len = 4096\n")
    first, second = (place.printed("--rank", str(rank)) for rank in (0, 1))
    assert first["environment"].pop("VLLM_HOST_IP") == "10.0.1.1"
    assert second["environment"].pop("VLLM_HOST_IP") == "10.0.1.2"
    assert first["environment"] == second["environment"]
    before, after = first["command"], second["command"]
    where = before.index("--node-rank") + 1
    assert (before[where], after[where]) == ("0", "1")
    assert before[-4:] == ["--host", "10.0.1.1", "--port", "8000"]
    assert after[-1] == "--headless"
    assert before[:-4][:where] + before[:-4][where + 1 :] == after[:-1][:where] + after[:-1][where + 1 :]
    for name, value in (("nnodes", "2"), ("master-addr", "10.0.1.1"), ("tensor-parallel-size", "2")):
        assert option(after, f"--{name}") == value
    assert option(after, "--distributed-executor-backend") == "mp"


def test_tables_are_optional_and_become_their_own_settings(place: Place) -> None:
    assert not [name for name in place.printed()["environment"] if name.startswith("VLLM_ENGRAM")]
    place.write(
        '[tables]\nservers = "tcp://10.0.0.1:18610"\ntables = "/srv/engram"\nrequired = true\ntimeout_ms = 80\n'
    )
    for config in ("A-local", "C-capacity"):
        found = place.printed(config=config)["environment"]
        assert {name: value for name, value in found.items() if name.startswith("VLLM_ENGRAM")} == {
            "VLLM_ENGRAM_REMOTE": "tcp://10.0.0.1:18610",
            "VLLM_ENGRAM_REMOTE_TABLES": "/srv/engram",
            "VLLM_ENGRAM_REMOTE_REQUIRED": "1",
            "VLLM_ENGRAM_REMOTE_TIMEOUT_MS": "80",
        }


def test_a_shell_gets_from_the_printed_line_what_the_json_says(place: Place) -> None:
    place.write('[environment]\nODD = "it\'s a $HOME `x`"\n[engine]\nchat-template = \'a "b"\\n c\'\n')
    wanted = place.printed()
    show = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    line = place.printed(form="shell").replace(" vllm serve ", f" python3 -c {shlex.quote(show)} ", 1)
    line = line.replace("    vllm serve ", f"    /usr/bin/env python3 -c {shlex.quote(show)} ", 1)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, timeout=30)
    environment, arguments = json.loads(done.stdout)
    assert {name: environment[name] for name in wanted["environment"]} == wanted["environment"]
    assert arguments == wanted["command"][2:]


def test_an_environment_file_has_a_line_for_each_variable_and_none_of_two_lines(place: Place) -> None:
    lines = place.printed(form="env").splitlines()
    assert dict(line.split("=", 1) for line in lines[:-1]) == place.printed()["environment"]
    assert lines[-1].startswith("# vllm serve /models/target")
    place.write('[environment]\nODD = "a\\nb"\n')
    assert place.refused("--format", "env") == [
        "--format env: environment.ODD: a value of two lines fits no such file"
    ]
    place.write('[engine]\nchat-template = "a\\nb"\n')
    assert place.refused("--format", "env") == [
        "--format env: command: a value of two lines fits no such file"
    ]


def test_a_shell_gets_from_the_environment_file_what_the_json_says(place: Place) -> None:
    odd = {
        "BLANKS": " two  words ",
        "ENDPOINT": "tcp://10.0.0.1:18620?bind=10.0.0.2&x=1",
        "HOME_OF": "~/a:~",
        "MARKS": 'it\'s "a" $HOME `x` $(x) \\ \\n; | < > & # ! * [a] {b,c} \\',
        "NOTHING": "",
        "TABBED": "a\tb",
    }
    # What JSON writes of a text, TOML reads.
    place.write("[environment]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in odd.items()))
    wanted = place.printed()["environment"]
    assert set(odd) < set(wanted)
    (place.root / "engine.env").write_text(place.printed(form="env"))
    show = shlex.join([sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"])
    command = ["/bin/sh", "-c", f"set -a; . ./engine.env; {show}"]
    done = subprocess.run(
        command, cwd=place.root, env={}, capture_output=True, text=True, check=True, timeout=30
    )
    assert {name: json.loads(done.stdout).get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("tcp://h:1?bind=a,b", "A=tcp://h:1?bind=a,b"),
        ("", "A="),
        ("a b", 'A="a b"'),
        ("a'b", 'A="a\'b"'),
        ('"\\$`', r'A="\"\\\$\`"'),
        ("~", 'A="~"'),
    ],
)
def test_an_environment_file_quotes_what_it_must_and_no_more(value: str, line: str) -> None:
    # POSIX (2.2.3 of the shell) and systemd.exec(5) agree on these four characters within double quotes.
    assert (
        formats.env(Rendering("x", 0, {"A": value}, ("vllm",), False, False, 1, None)) == f"{line}\n# vllm\n"
    )


def test_no_key_is_shown_only_where_it_lies(place: Place) -> None:
    key = place.root / "key"
    key.write_text("a secret that nobody may see, 32 bytes")
    key.chmod(0o600)
    place.write(f'[remote]\nkey_file = "{key}"\n')
    for form in ("shell", "env", "json", "container"):
        text = place.printed(form=form) if form != "json" else json.dumps(place.printed())
        assert str(key) in text
        assert "nobody may see" not in text


def test_another_command_can_start_the_engine(place: Place) -> None:
    start = '["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "{target}"]'
    path = place.site
    path.write_text(f"command = {start}\n{path.read_text()}")
    assert place.printed()["command"][:5] == [
        *("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/target"),
    ]


def test_every_shipped_config_says_what_it_is_for() -> None:
    texts = shipped()
    assert set(texts) == {
        *("A-local", "C-shadow", "C-shadow-remote", "C-capacity", "C-capacity-nodrop"),
        *("C-resilience", "C-capacity-async"),
    }
    assert all("description = " in text for text in texts.values())


def test_the_folder_that_a_config_lies_in_decides_what_it_extends(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "base.toml").write_text('extends = "C-capacity"\n[remote]\ntrip = 9\n')
    (folder / "own.toml").write_text('extends = "base.toml"\n')
    found = place.printed(config=str(folder / "own.toml"))
    assert found["environment"]["VLLM_DSPARK_REMOTE_TRIP"] == "9"
    assert found["config"] == "own"
