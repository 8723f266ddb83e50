"""The seam's log line with the counters, and the client that an engine's settings ask for.  No vLLM is needed."""

import logging
from pathlib import Path
from typing import Any

import pytest
from engram_client_tools import until
from engram_remote.settings import PREFIX, Settings
from engram_remote.vllm_seam import reader
from engram_remote.vllm_seam.errors import SeamError
from engram_remote.vllm_seam.place import Place
from engram_remote.vllm_seam.refusals import refuse_groups
from engram_remote.vllm_seam.report import Statistics

MS = 1_000_000


class Counting:
    """Counters that rise when a test says so."""

    def __init__(self) -> None:
        self.lookups = 0

    def counters(self) -> dict[str, int]:
        return {"lookups_remote": self.lookups, "lookups_local": 0}

    def statistics_line(self) -> str:
        return f"{self.lookups} remote lookups"


def test_a_line_comes_where_a_counter_rose_and_one_more_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "engram_remote.vllm_seam")
    source = Counting()
    statistics = Statistics(source, 0.01, "rank 1")
    source.lookups = 3
    until(lambda: bool(caplog.messages), "the line")
    assert caplog.messages == ["engram-remote: rank 1: 3 remote lookups"]
    statistics.stop()
    statistics.stop()
    assert len(caplog.messages) == 1, "nothing happened since"
    late = Statistics(source, 3600.0, "rank 1")
    source.lookups = 4
    late.stop()
    assert caplog.messages[1:] == ["engram-remote: rank 1: 4 remote lookups"]


def test_every_setting_of_a_lookup_reaches_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "TIMEOUT_MS": "20", "REQUIRED": "1", "CONNECT_TIMEOUT_MS": "30", "RETRY_MS": "40", "RETRY_MAX_MS": "50",
        "KEY_FILE": "/k", "BOUNCE": "1", "CHECKSUM": "1", "BUFFERED": "1", "PREAD": "1", "READ_THREADS": "6",
        "SPIN_MS": "70",
    }  # fmt: skip
    environ = {f"{PREFIX}_{name}": value for name, value in given.items()}
    settings = Settings.from_environ(environ | {PREFIX: "shm://a,shm://b", f"{PREFIX}_TABLES": "/t"})
    assert settings is not None
    made: list[Any] = []
    monkeypatch.setattr(reader, "Client", lambda options, manifest: made.append(options))
    reader.open_client(settings, Place(1, 2, 8, {}, None), Path("/t"), None, 99)  # type: ignore[arg-type]
    [options] = made
    assert (options.tables, options.rank, options.endpoint, options.batch_rows_max) == (
        Path("/t"),
        1,
        "shm://b",
        99,
    )
    assert (options.timeout_ns, options.connect_timeout_ns, options.spin_ns) == (20 * MS, 30 * MS, 70 * MS)
    assert (options.retry_ns, options.retry_max_ns, options.read_threads) == (40 * MS, 50 * MS, 6)
    assert options.key_file == Path("/k")
    assert all((options.required, options.bounce, options.checksum, options.buffered, options.pread))


def test_peer_tables_are_refused() -> None:
    class Embedding:
        dp_size, peer_rows = 1, 5

    with pytest.raises(SeamError, match="peer tables are not served remotely"):
        refuse_groups(Embedding)
    Embedding.peer_rows = 0
    refuse_groups(Embedding)
