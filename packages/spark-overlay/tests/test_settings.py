"""Settings come from one definition; what is wrong is said in sentences that name the variable."""

import os
from pathlib import Path

import pytest
from ofl.keys import KeyFileError, check_key, write_key
from pydantic import ValidationError
from spark_overlay.depth.rules import Costs
from spark_overlay.settings import NOT_BUILT_YET, Settings, SettingsError, not_built_yet_list, settings_table

DIGEST = "0123456789abcdef" * 4
GOOD = {
    "VLLM_DSPARK_REMOTE": "tcp://10.0.0.1:18620?bind=10.0.0.2",
    "VLLM_DSPARK_REMOTE_IDENTITY": DIGEST,
    "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": DIGEST[::-1],
}
DOCS = Path(__file__).parents[3] / "docs/operations/settings.md"


def problems(**changes: str | None) -> list[str]:
    """What is said of GOOD with changes; names without the prefix, None removes."""
    environ: dict[str, str] = dict(GOOD)
    for name, value in changes.items():
        full = "VLLM_DSPARK_REMOTE" + (f"_{name}" if name else "")
        environ.pop(full, None)
        if value is not None:
            environ[full] = value
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ(environ)
    return caught.value.problems


@pytest.mark.parametrize("environ", [{}, {"VLLM_DSPARK_REMOTE": ""}, {"VLLM_DSPARK_REMOTE_TIMEOUT_MS": "-1"}])
def test_without_the_switch_there_are_no_settings(environ: dict[str, str]) -> None:
    assert Settings.from_environ(environ) is None


def test_defaults_are_those_of_the_documentation() -> None:
    settings = Settings.from_environ(GOOD | {"PATH": "/bin", "VLLM_OTHER": "1"})
    assert settings is not None
    assert settings.endpoint == "tcp://10.0.0.1:18620?bind=10.0.0.2"
    assert settings.policy == "capacity"
    assert settings.timeout_ms == 50.0
    assert (settings.retry_ms, settings.retry_max_ms) == (1000.0, 30000.0)
    assert (settings.trip, settings.cooldown, settings.alarm_rounds) == (3, 256, 200)
    assert (settings.shadow_use, settings.on_fail) == ("local", "draft-nothing")
    assert settings.n_out is True
    assert settings.stats_file is None
    assert settings.key_file is None


@pytest.mark.parametrize(
    "endpoint", ["rdma://10.0.0.1:18620?bind=10.0.0.2", "rdma://[fd00::1]:1", "shm://spark.0_a-b"]
)
def test_every_wire_can_be_asked_for(endpoint: str) -> None:
    settings = Settings.from_environ(GOOD | {"VLLM_DSPARK_REMOTE": endpoint})
    assert settings is not None
    assert settings.endpoint == endpoint


def test_an_empty_variable_counts_as_unset() -> None:
    settings = Settings.from_environ(GOOD | {"VLLM_DSPARK_REMOTE_TIMEOUT_MS": ""})
    assert settings is not None
    assert settings.timeout_ms == 50.0


def test_every_setting_can_be_given() -> None:
    given = {
        "TIMEOUT_MS": "12.5", "N_OUT": "0", "ON_FAIL": "raise", "RING_ROWS": "64", "ROUND_BYTES": "1000000",
        "FRAME_BYTES": "100000", "CONNECT_TIMEOUT_MS": "10", "RETRY_MS": "1", "RETRY_MAX_MS": "2",
        "LOG_EVERY": "0", "STATS_FILE": "/x/s.json", "READY_FILE": "/x/r.json", "START_ID": "a b",
        "CONTROL_FILE": "/x/c.json",
        "POLICY": "shadow", "SHADOW_USE": "remote", "TRIP": "0", "COOLDOWN": "9", "ALARM_ROUNDS": "50",
        "KEY_FILE": "/x/key", "DRAFT_MS": "2.5", "ROUND_MS": "30,31,31.5",
    }  # fmt: skip
    settings = Settings.from_environ(
        GOOD | {f"VLLM_DSPARK_REMOTE_{name}": value for name, value in given.items()}
    )
    assert settings is not None
    assert settings.timeout_ms == 12.5
    assert settings.n_out is False
    assert settings.on_fail == "raise"
    assert settings.stats_file == Path("/x/s.json")
    assert settings.key_file == Path("/x/key")
    assert settings.control_file == Path("/x/c.json")
    assert settings.costs == Costs(draft_ms=2.5, round_ms=(30.0, 31.0, 31.5))
    known = {str(field.alias) for field in Settings.model_fields.values()}
    assert known == set(GOOD) | {f"VLLM_DSPARK_REMOTE_{name}" for name in given}


def test_settings_cannot_be_changed_later() -> None:
    settings = Settings.from_environ(GOOD)
    assert settings is not None
    with pytest.raises(ValidationError):
        settings.timeout_ms = 1.0


@pytest.mark.parametrize(
    "value", ["0", "-1", "nan", "inf", "-inf", "soon", "1e999", "1e300", "1e-12", "86400001"]
)
@pytest.mark.parametrize("name", ["TIMEOUT_MS", "CONNECT_TIMEOUT_MS", "RETRY_MS"])
def test_a_time_that_no_deadline_can_hold_is_refused(name: str, value: str) -> None:
    changes: dict[str, str | None] = {"RETRY_MAX_MS": "86400000", name: value}
    (sentence,) = problems(**changes)
    assert sentence.startswith(f"VLLM_DSPARK_REMOTE_{name}: ")
    assert sentence.endswith(".")


@pytest.mark.parametrize("value", ["", None])
def test_the_identities_are_required(value: str | None) -> None:
    assert problems(IDENTITY=value) == ["VLLM_DSPARK_REMOTE_IDENTITY: it must be set."]
    assert problems(MARKOV_IDENTITY=value) == ["VLLM_DSPARK_REMOTE_MARKOV_IDENTITY: it must be set."]


@pytest.mark.parametrize("value", [DIGEST[:-1], DIGEST + "0", DIGEST.upper(), DIGEST + "\n", "g" * 64])
def test_an_identity_that_is_no_digest_is_refused(value: str) -> None:
    (sentence,) = problems(IDENTITY=value)
    assert sentence.startswith("VLLM_DSPARK_REMOTE_IDENTITY: 64 lower-case hex digits are needed, not ")


@pytest.mark.parametrize(
    ("endpoint", "clause"),
    [
        ("10.0.0.1:18620", "no scheme"),
        ("capacity", "no scheme"),
        ("quic://10.0.0.1:1", "unknown"),
        ("rdma://10.0.0.1", "the port is missing"),
        ("shm://a/b", "name 'a/b'"),
        ("shm://name?bind=10.0.0.2", "name 'name?bind=10.0.0.2'"),
        ("rdma://10.0.0.1:0", "port 0 can be listened on but not connected to"),
        ("tcp://10.0.0.1", "port is missing"),
        ("tcp://10.0.0.1:99999", "port"),
        ("tcp://10.0.0.1:1?bind=here", "bind"),
        ("tcp://10.0.0.1:0", "port 0 can be listened on but not connected to"),
        ("tcp://10.0.0.1:1\n", "control character"),
        (" ", "no scheme"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: str, clause: str) -> None:
    (sentence,) = problems(**{"": endpoint})
    assert sentence.startswith("VLLM_DSPARK_REMOTE: ")
    assert clause in sentence


def test_an_unknown_policy_is_refused() -> None:
    assert problems(POLICY="speed") == [
        "VLLM_DSPARK_REMOTE_POLICY: 'speed' is given where 'capacity', 'resilience' or 'shadow' is needed."
    ]


@pytest.mark.parametrize("policy", ["capacity", "resilience", "shadow"])
def test_every_policy_can_be_chosen(policy: str) -> None:
    settings = Settings.from_environ(GOOD | {"VLLM_DSPARK_REMOTE_POLICY": policy})
    assert settings is not None
    assert settings.policy == policy


@pytest.mark.parametrize("name", sorted(NOT_BUILT_YET))
def test_known_names_that_are_not_built_are_refused_as_such(name: str) -> None:
    (sentence,) = problems(**{name.removeprefix("VLLM_DSPARK_REMOTE_"): "1"})
    assert sentence == f"{name}: this setting is not built yet in this version; remove it."


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    (sentence,) = problems(TIMEOUT="50")
    assert sentence == (
        "VLLM_DSPARK_REMOTE_TIMEOUT: no such setting; did you mean VLLM_DSPARK_REMOTE_TIMEOUT_MS?"
    )
    with pytest.raises(SettingsError, match="VLLM_DSPARK_REMOTEX"):
        Settings.from_environ(GOOD | {"VLLM_DSPARK_REMOTEX": "1"})


@pytest.mark.parametrize("name", ["vllm_dspark_remote_timeout_ms", "VLLM_DSPARK_REMOTE_timeout_ms"])
def test_a_name_in_lower_case_is_no_setting_and_is_not_ignored(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ(GOOD | {name: "5"})
    assert caught.value.problems == [f"{name}: no such setting; did you mean VLLM_DSPARK_REMOTE_TIMEOUT_MS?"]


@pytest.mark.parametrize("name", ["STATS_FILE", "READY_FILE", "KEY_FILE"])
@pytest.mark.parametrize("path", ["/", ".", "..", "/tmp/.."])
def test_a_path_that_names_no_file_is_refused(name: str, path: str) -> None:
    assert problems(**{name: path}) == [f"VLLM_DSPARK_REMOTE_{name}: {path!r} names no file."]


@pytest.mark.parametrize("name", ["STATS_FILE", "READY_FILE"])
def test_a_file_that_could_never_be_written_is_told_before_an_engine_loads(name: str, tmp_path: Path) -> None:
    def said(path: Path) -> list[str]:
        settings = Settings.from_environ(GOOD | {f"VLLM_DSPARK_REMOTE_{name}": str(path)})
        assert settings is not None
        with pytest.raises(SettingsError) as caught:
            settings.check_files()
        return caught.value.problems

    missing = tmp_path / "missing"
    assert said(missing / "file") == [f"VLLM_DSPARK_REMOTE_{name}: {missing} is not a folder."]
    assert said(tmp_path) == [f"VLLM_DSPARK_REMOTE_{name}: {tmp_path} is a folder."]
    for path in (Path("/dev/null"), tmp_path / "fifo"):
        if not path.exists():
            os.mkfifo(path)
        assert said(path) == [f"VLLM_DSPARK_REMOTE_{name}: {path} is not a regular file."], (
            "not to be replaced"
        )
    good = Settings.from_environ(GOOD | {f"VLLM_DSPARK_REMOTE_{name}": str(tmp_path / "file")})
    assert good is not None
    good.check_files()


def spoil(key: Path, how: str) -> Path:
    """What may not be used in place of a key that may."""
    if how == "missing":
        key.unlink()
    elif how == "readable by others":
        key.chmod(0o640)
    elif how == "too short":
        key.write_bytes(b"x" * 31)
    elif how == "a folder":
        return key.parent
    else:
        key = key.with_name("link")
        key.symlink_to("key")
    return key


@pytest.mark.parametrize("how", ["missing", "readable by others", "too short", "a folder", "a link"])
def test_a_key_that_may_not_be_used_is_told_before_an_engine_loads(how: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    write_key(key)
    good = Settings.from_environ(GOOD | {"VLLM_DSPARK_REMOTE_KEY_FILE": str(key)})
    assert good is not None
    good.check_files()
    path = spoil(key, how)
    environ = {
        "VLLM_DSPARK_REMOTE_KEY_FILE": str(path),
        "VLLM_DSPARK_REMOTE_STATS_FILE": str(tmp_path / "no" / "s"),
    }
    settings = Settings.from_environ(GOOD | environ)
    assert settings is not None
    with pytest.raises(KeyFileError) as rule:
        check_key(path)
    with pytest.raises(SettingsError) as caught:
        settings.check_files()
    assert caught.value.problems == [
        f"VLLM_DSPARK_REMOTE_KEY_FILE: {rule.value}.",
        f"VLLM_DSPARK_REMOTE_STATS_FILE: {tmp_path / 'no'} is not a folder.",
    ]
    assert str(path) in str(rule.value)


def test_one_file_for_both_is_refused(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    settings = Settings.from_environ(
        GOOD | {"VLLM_DSPARK_REMOTE_STATS_FILE": file, "VLLM_DSPARK_REMOTE_READY_FILE": file}
    )
    assert settings is not None
    with pytest.raises(SettingsError) as caught:
        settings.check_files()
    assert caught.value.problems == [f"VLLM_DSPARK_REMOTE_STATS_FILE: {file} is the ready file too."]


@pytest.mark.parametrize("name", ["STATS_FILE", "READY_FILE"])
def test_a_control_file_that_the_engine_would_write_over_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "control.json"
    given = {f"VLLM_DSPARK_REMOTE_{name}": str(file), "VLLM_DSPARK_REMOTE_CONTROL_FILE": str(file)}
    settings = Settings.from_environ(GOOD | given)
    assert settings is not None
    with pytest.raises(SettingsError) as caught:
        settings.check_files()
    said = f"VLLM_DSPARK_REMOTE_CONTROL_FILE: {file} is the file of VLLM_DSPARK_REMOTE_{name} too."
    assert caught.value.problems == [said]


def test_a_control_file_may_be_missing_but_not_its_folder(tmp_path: Path) -> None:
    for path, fine in ((tmp_path / "c.json", True), (tmp_path / "no" / "c.json", False)):
        settings = Settings.from_environ(GOOD | {"VLLM_DSPARK_REMOTE_CONTROL_FILE": str(path)})
        assert settings is not None
        if fine:
            settings.check_files()
            continue
        with pytest.raises(SettingsError, match=r"VLLM_DSPARK_REMOTE_CONTROL_FILE: .* is not a folder"):
            settings.check_files()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    said = problems(TIMEOUT_MS="0", IDENTITY=None, ASYNC="1", ON_FAIL="explode", RING_ROWS="0")
    assert [sentence.split(":")[0].removeprefix("VLLM_DSPARK_REMOTE_") for sentence in said] == [
        "ASYNC",
        "IDENTITY",
        "TIMEOUT_MS",
        "ON_FAIL",
        "RING_ROWS",
    ]
    assert "'explode' is given where 'draft-nothing' or 'raise' is needed." in said[3]


def test_a_longest_delay_below_the_first_is_refused() -> None:
    assert problems(RETRY_MS="500", RETRY_MAX_MS="100") == [
        "VLLM_DSPARK_REMOTE_RETRY_MAX_MS: 100 is below VLLM_DSPARK_REMOTE_RETRY_MS, 500."
    ]


def test_the_documentation_lists_exactly_these_settings() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for mark, made in (("settings", settings_table()), ("not built yet", not_built_yet_list())):
        begin, end = f"<!-- begin {mark} -->\n", f"<!-- end {mark} -->"
        assert text.split(begin)[1].split(end)[0] == made, "run python -m spark_overlay.docs"
