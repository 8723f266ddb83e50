"""What an engine's environment may ask for, and the sentence for each thing that it may not."""

from pathlib import Path

import pytest
from engram_remote.settings import NOT_OURS, PREFIX, Settings, SettingsError, settings_table
from ofl.keys import write_key
from pydantic import ValidationError

DOCS = Path(__file__).parents[3] / "docs" / "engram" / "settings.md"
SERVERS = "rdma://192.0.2.1:18610?bind=192.0.2.2,tcp://192.0.2.3:18610"


def made(**given: str) -> Settings:
    environ = {PREFIX: SERVERS, f"{PREFIX}_TABLES": "tables"}
    found = Settings.from_environ(environ | {f"{PREFIX}_{name}": value for name, value in given.items()})
    assert found is not None
    return found


def problems(**given: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        made(**given)
    return caught.value.problems


@pytest.mark.parametrize("environ", [{}, {PREFIX: ""}, {f"{PREFIX}_TIMEOUT_MS": "nonsense"}])
def test_without_servers_nothing_is_asked_for(environ: dict[str, str]) -> None:
    assert Settings.from_environ(environ) is None


def test_defaults_are_those_of_the_reference_deployment() -> None:
    found = made()
    assert (found.timeout_ms, found.retry_ms, found.log_s) == (100.0, 5000.0, 60.0)
    assert not any((found.required, found.bounce, found.checksum, found.buffered, found.pread))


def test_every_setting_is_read_from_its_variable() -> None:
    given = {
        "TIMEOUT_MS": "20",
        "REQUIRED": "1",
        "CONNECT_TIMEOUT_MS": "30",
        "RETRY_MS": "40",
        "RETRY_MAX_MS": "50",
        "KEY_FILE": "/k",
        "BOUNCE": "1",
        "CHECKSUM": "1",
        "BUFFERED": "1",
        "PREAD": "1",
        "READ_THREADS": "6",
        "SPIN_MS": "70",
        "LOG_S": "80",
        "READY_FILE": "/r",
        "START_ID": "x",
    }
    found = made(**given)
    rest = found.model_dump(exclude={"endpoints", "tables"})
    assert list(rest.values()) == [
        20, True, 30, 40, 50, Path("/k"), True, True, True, True, 6, 70, 80, Path("/r"), "x"
    ]  # fmt: skip
    assert len(given) == len(rest), "a setting without a variable in this test"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        made().timeout_ms = 1.0


def test_a_rank_has_its_own_server_and_a_single_one_serves_all() -> None:
    two = made()
    assert str(two.endpoint(0, 2)) == "rdma://192.0.2.1:18610?bind=192.0.2.2"
    assert str(two.endpoint(1, 2)) == "tcp://192.0.2.3:18610"
    one = Settings.from_environ({PREFIX: "shm://tables", f"{PREFIX}_TABLES": "tables"})
    assert one is not None
    assert {str(one.endpoint(rank, 4)) for rank in range(4)} == {"shm://tables"}


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_list_of_another_length_than_the_ranks_is_refused(ranks: int) -> None:
    with pytest.raises(SettingsError, match=f"{PREFIX}: 2 entries, where the engine has {ranks} head shards"):
        made().endpoint(0, ranks)


@pytest.mark.parametrize(
    "name", ["TIMEOUT_MS", "RETRY_MS", "RETRY_MAX_MS", "CONNECT_TIMEOUT_MS", "SPIN_MS", "LOG_S"]
)
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf", "1e300", "1e-9", "soon"])
def test_what_is_no_duration_is_refused_by_name(name: str, value: str) -> None:
    [sentence] = problems(**{name: value})
    assert sentence.startswith(f"{PREFIX}_{name}: ")
    assert sentence.endswith(".")


@pytest.mark.parametrize("value", ["0", "-3", "1025", "1.5", "many", "inf", "nan"])
def test_what_is_no_number_of_threads_is_refused_by_name(value: str) -> None:
    [sentence] = problems(READ_THREADS=value)
    assert sentence.startswith(f"{PREFIX}_READ_THREADS: ")


@pytest.mark.parametrize("name", ["REQUIRED", "BOUNCE", "CHECKSUM", "BUFFERED", "PREAD"])
def test_what_is_no_switch_is_refused_by_name(name: str) -> None:
    [sentence] = problems(**{name: "perhaps"})
    assert sentence.startswith(f"{PREFIX}_{name}: 'perhaps' is given where a valid boolean")


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ("192.0.2.1:5", "entry 0: endpoint '192.0.2.1:5': it has no scheme://"),
        ("tcp://192.0.2.1:5,", "entry 1: endpoint '': it has no scheme://"),
        (
            "tcp://192.0.2.1:5,udp://192.0.2.1:5",
            "entry 1: endpoint 'udp://192.0.2.1:5': scheme 'udp' is unknown",
        ),
        ("tcp://192.0.2.1:0", "entry 0: endpoint 'tcp://192.0.2.1:0': port 0 can be listened on"),
        (
            "tcp://192.0.2.1:5 ,tcp://192.0.2.2:5",
            "entry 0: endpoint 'tcp://192.0.2.1:5 ': port '5 ' is not a number",
        ),
    ],
)
def test_what_is_no_list_of_servers_is_refused_with_its_entry(servers: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ({PREFIX: servers, f"{PREFIX}_TABLES": "tables"})
    [sentence] = caught.value.problems
    assert sentence.startswith(f"{PREFIX}: {says}")


def test_tables_must_be_set() -> None:
    with pytest.raises(SettingsError, match=f"{PREFIX}_TABLES: it must be set."):
        Settings.from_environ({PREFIX: SERVERS})


@pytest.mark.parametrize("name", ["KEY_FILE", "READY_FILE"])
@pytest.mark.parametrize("path", ["/", "..", "a/.."])
def test_a_path_that_names_nothing_is_refused(name: str, path: str) -> None:
    assert problems(**{name: path}) == [f"{PREFIX}_{name}: {path!r} names nothing."]


def test_names_that_do_not_exist_are_refused_with_the_nearest_that_does() -> None:
    assert problems(TIMEOUT="5") == [f"{PREFIX}_TIMEOUT: no such setting; did you mean {PREFIX}_TIMEOUT_MS?"]
    with pytest.raises(SettingsError, match="vllm_engram_remote_bounce: no such setting; did you mean"):
        Settings.from_environ({PREFIX: SERVERS, f"{PREFIX}_TABLES": "t", "vllm_engram_remote_bounce": "1"})
    for name, reason in NOT_OURS.items():
        assert problems(**{name.removeprefix(f"{PREFIX}_"): "/x"}) == [f"{name}: {reason}; remove it."]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    said = problems(TIMEOUT_MS="0", BOUNCE="perhaps", NAP="3")
    assert [sentence.split(":")[0].removeprefix(f"{PREFIX}_") for sentence in said] == [
        "NAP",
        "TIMEOUT_MS",
        "BOUNCE",
    ]


def test_a_longest_delay_below_the_first_is_refused() -> None:
    assert problems(RETRY_MS="500", RETRY_MAX_MS="100") == [
        f"{PREFIX}_RETRY_MAX_MS: 100 is below {PREFIX}_RETRY_MS, 500."
    ]


def test_files_are_checked_before_an_engine_loads(tmp_path: Path) -> None:
    key = tmp_path / "key"
    write_key(key)
    made(TABLES=str(tmp_path), KEY_FILE=str(key), READY_FILE=str(tmp_path / "ready")).check_files()
    key.chmod(0o644)
    wrong = made(
        TABLES=str(tmp_path / "none"), KEY_FILE=str(key), READY_FILE=str(tmp_path / "none" / "ready")
    )
    with pytest.raises(SettingsError) as caught:
        wrong.check_files()
    assert [sentence.split(":")[0].removeprefix(f"{PREFIX}_") for sentence in caught.value.problems] == [
        "KEY_FILE", "TABLES", "READY_FILE"
    ]  # fmt: skip


def test_the_documentation_lists_exactly_these_settings() -> None:
    text = DOCS.read_text(encoding="utf-8")
    listed = text.split("<!-- begin settings -->\n")[1].split("<!-- end settings -->")[0]
    assert listed == settings_table(), "run python -m engram_remote.settings docs/engram/settings.md"
