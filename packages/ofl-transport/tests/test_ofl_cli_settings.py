"""The environment variables: what is passed wins, then the environment, then the default; a fault is one sentence."""

import struct
import threading

import pytest
from ofl import settings
from ofl.client import HEARTBEAT_NS, LOSS_NS, SPIN_NS, connect
from ofl.errors import PeerLostError, SettingError, TransportError
from ofl.server import Server
from transport_frames import read_frame
from transport_harness import Harness
from transport_times import joined, soon

MS = 1_000_000


def test_the_defaults_find_a_dead_idle_peer_within_250_ms() -> None:
    assert (HEARTBEAT_NS, LOSS_NS, SPIN_NS) == (50 * MS, 250 * MS, 50_000)
    assert settings.liveness_ns(environ={}) == (50 * MS, 250 * MS)
    assert settings.spin_ns(environ={}) == 50_000


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_is_an_unset_one(empty: str) -> None:
    assert settings.liveness_ns(environ={"OFL_HEARTBEAT_MS": empty, "OFL_LOSS_MS": empty}) == (
        50 * MS,
        250 * MS,
    )


def test_the_environment_wins_over_defaults_and_what_is_passed_over_both() -> None:
    environ = {"OFL_HEARTBEAT_MS": "100", "OFL_LOSS_MS": "2000", "OFL_SPIN_US": "0"}
    assert settings.liveness_ns(environ=environ) == (100 * MS, 2000 * MS)
    assert settings.liveness_ns(20 * MS, None, environ) == (20 * MS, 2000 * MS)
    assert settings.liveness_ns(None, 300 * MS, environ) == (100 * MS, 300 * MS)
    assert settings.spin_ns(environ=environ) == 0
    assert settings.spin_ns(7, environ) == 7


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.name)
def test_the_ends_of_a_range_belong_to_it(setting: settings.Setting) -> None:
    for value in (setting.lowest, setting.highest):
        assert setting.ns({setting.name: str(value)}) == value * setting.unit_ns
    for value in (setting.lowest - 1, setting.highest + 1):
        with pytest.raises(SettingError, match=setting.name):
            setting.ns({setting.name: str(value)})


@pytest.mark.parametrize("text", ["250ms", "0.5", "1e3", "-1", "+5", "nan", "\u0662", "9" * 10, "1_000"])
@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.name)
def test_what_is_no_whole_number_is_named_with_its_variable_and_range(
    setting: settings.Setting, text: str
) -> None:
    with pytest.raises(SettingError) as caught:
        setting.ns({setting.name: text})
    sentence = str(caught.value)
    assert sentence.startswith(f"{setting.name}={text!r} is not a whole number of ")
    assert sentence.endswith(f"from {setting.lowest} to {setting.highest}")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("passed", "environ", "sentence"),
    [
        (
            (None, None),
            {"OFL_HEARTBEAT_MS": "500"},
            "OFL_LOSS_MS must be at least twice OFL_HEARTBEAT_MS, but they are 250 ms and 500 ms",
        ),
        (
            (None, None),
            {"OFL_LOSS_MS": "99"},
            "OFL_LOSS_MS must be at least twice OFL_HEARTBEAT_MS, but they are 99 ms and 50 ms",
        ),
        (
            (200 * MS, None),
            {},
            "OFL_LOSS_MS must be at least twice heartbeat_ns, but they are 250 ms and 200 ms",
        ),
        (
            (None, 80 * MS),
            {},
            "loss_ns must be at least twice OFL_HEARTBEAT_MS, but they are 80 ms and 50 ms",
        ),
    ],
)
def test_a_loss_limit_below_two_heartbeats_names_who_said_what(
    passed: tuple[int | None, int | None], environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SettingError) as caught:
        settings.liveness_ns(*passed, environ)
    assert str(caught.value) == sentence


def test_what_is_passed_whole_does_not_look_at_the_environment() -> None:
    broken = {"OFL_HEARTBEAT_MS": "x", "OFL_LOSS_MS": "x", "OFL_SPIN_US": "x"}
    assert settings.liveness_ns(1, 1, broken) == (
        1,
        1,
    )  # the library refuses it, in the words of the arguments
    assert settings.spin_ns(1, broken) == 1


def test_a_broken_variable_stops_a_connection_before_anything_is_sent(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, endpoint = harness.listening()
    monkeypatch.setenv("OFL_SPIN_US", "fast")
    with pytest.raises(TransportError, match="OFL_SPIN_US='fast' is not a whole number of microseconds"):
        harness.client(endpoint)
    with pytest.raises(ValueError, match="OFL_SPIN_US"):
        Server("s", version_min=1, version_max=1, max_frame_bytes=1024)
    assert server.counters()["accepted"] == 0


def test_the_environment_reaches_the_wire(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that reads the connect frame by hand finds the numbers in it."""
    monkeypatch.setenv("OFL_HEARTBEAT_MS", "70")
    monkeypatch.setenv("OFL_LOSS_MS", "4321")
    listener, endpoint = harness.listener()
    seen: list[bytes] = []

    def accept() -> None:
        connection, _ = listener.accept()
        with connection:
            seen.append(read_frame(connection)[2])

    thread = threading.Thread(target=accept)
    thread.start()
    with pytest.raises(PeerLostError):
        connect(endpoint, service="s", version_min=1, version_max=1, max_frame_bytes=1024, deadline_ns=soon())
    joined(thread)
    assert struct.unpack_from("<II", seen[0], 16) == (
        70,
        4321,
    )  # docs/transport/wire.md: heartbeat_ms, loss_ms
