"""Prometheus metrics: all that is in the file, with its meaning; no file and no client takes the exporter down."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from hypothesis import event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from spark_overlay import metrics_server
from spark_overlay.cli import main
from spark_overlay.figures import LATENCIES
from spark_overlay.link import LinkCounters
from spark_overlay.metrics import GAUGES, INFO, StatsCollector
from spark_overlay.metrics_server import parse_listen, serving
from spark_overlay.report import write_json
from spark_overlay.round.counters import Counters
from spark_overlay.settings import Settings

MEANINGS = Counters.meanings() | LinkCounters.meanings()
MINIMUM: dict[str, Any] = {"counters": {}, "latency": {}, "acceptance": {}}
"""The smallest stats file."""


def scrape(path: Path, now_s: float | None = None) -> dict[str, Metric]:
    """The families by name, after a round trip through the text format."""
    clock = {} if now_s is None else {"clock_s": lambda: now_s}
    registry = CollectorRegistry()
    registry.register(StatsCollector(path, lambda problem: None, **clock))
    return {
        family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())
    }


def of(tmp_path: Path, stats: dict[str, Any]) -> dict[str, Metric]:
    """The families of these figures."""
    write_json(tmp_path / "s.json", stats)
    return scrape(tmp_path / "s.json")


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    """The one sample of this name that has these labels."""
    (found,) = [
        entry.value
        for family in families.values()
        for entry in family.samples
        if entry.name == f"spark_overlay_{sample}" and labels.items() <= entry.labels.items()
    ]
    return found


def test_every_counter_of_a_real_run_is_exported_with_its_meaning(
    tmp_path: Path, make_run: Callable[..., Any]
) -> None:
    stats = make_run().eventful().stats()
    families = of(tmp_path, stats)
    for name, count in stats["counters"].items():
        if name.startswith("fallback_"):
            got = value(families, "fallbacks_total", reason=name.removeprefix("fallback_"))
        elif name.startswith("req_status_"):
            got = value(families, "req_status_total", status=name.removeprefix("req_status_"))
        else:
            got = value(families, f"{name}_total")
            assert families[f"spark_overlay_{name}"].documentation == MEANINGS[name]
        assert got == count, name
    told = families["spark_overlay_fallbacks"].documentation
    assert "timeout: the round's deadline passed" in told


@pytest.mark.parametrize("policy", get_args(Settings.model_fields["policy"].annotation))
def test_nothing_in_a_real_file_is_without_a_meaning(
    tmp_path: Path, make_run: Callable[..., Any], policy: str
) -> None:
    for name, family in of(tmp_path, make_run(POLICY=policy).eventful().stats()).items():
        assert len(family.documentation) > 10, name
        assert not family.documentation.endswith(" of the stats file"), (
            f"{name} only has what unknown fields get"
        )


def test_a_real_run_in_numbers(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    families = of(tmp_path, make_run().eventful().stats())
    for reason in ("not_ready", "timeout", "bad_reply", "transport_error"):
        assert value(families, "fallbacks_total", reason=reason) == 1
    assert value(families, "fallbacks_total", reason="internal_error") == 0
    assert value(families, "connected") == 0
    assert value(families, "disabled") == 0
    assert value(families, "stats_readable") == 1
    assert value(families, "timeout_seconds") == pytest.approx(0.05)
    # Verified 4 blocks of 4 drafts, of which 4, 2, 0 and 1 were accepted.
    assert value(families, "acceptance_verified_total") == 4
    assert value(families, "acceptance_accepted_total") == 7
    assert value(families, "acceptance_drafted_total") == 16
    by_position = [
        value(families, "acceptance_accepted_by_position_total", position=str(at)) for at in range(4)
    ]
    assert by_position == [3, 2, 1, 1]
    assert value(families, "partial_starts_total") == 1


def at(stats: dict[str, Any], path: str) -> Any:
    """What stands in the file at a path."""
    found: Any = stats
    for name in path.split("."):
        found = found[name]
    return found


def test_each_gauge_and_each_text_is_the_files_own(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(POLICY="shadow", TRIP="7", COOLDOWN="9", ALARM_ROUNDS="1").eventful()
    run.connect()
    run.step(2)
    run.drafter.record_acceptance(0, 4, 100)
    stats = run.stats()
    families = of(tmp_path, stats)
    for path, (name, _, _) in GAUGES.items():
        unit = 1e-3 if path.endswith("_ms") else 1.0
        assert value(families, name) == pytest.approx(at(stats, path) * unit), path
    shown = [
        value(families, name) for name in ("connected", "acceptance_alarm", "epoch", "breaker_trip_failures")
    ]
    assert shown == [1, 1, 2, 7], "none of these by chance"
    (info,) = families["spark_overlay_info"].samples
    for label, path in INFO.items():
        assert info.labels[label] == str(at(stats, path)) != "", label


def test_every_sample_names_the_worker_and_the_policy(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    for family in of(tmp_path, make_run().eventful().stats()).values():
        for sample in family.samples:
            if not sample.name.startswith("spark_overlay_stats_"):
                assert (sample.labels["endpoint"], sample.labels["policy"]) == (
                    "tcp://worker:18620",
                    "capacity",
                )


def test_latencies_are_seconds(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    stats = make_run().eventful().stats()
    families = of(tmp_path, stats)
    found = stats["latency"]["gather_us"]
    assert found["count"] == stats["counters"]["rounds"]
    assert value(families, "gather_seconds_count") == found["count"]
    assert value(families, "gather_seconds_sum") == pytest.approx(3e-6 * found["count"]), (
        "3 us for each round"
    )
    assert value(families, "gather_seconds", quantile="0.99") == pytest.approx(found["p99"] * 1e-6)
    assert value(families, "gather_max_seconds") == pytest.approx(3e-6)
    assert LATENCIES["gather_us"] in families["spark_overlay_gather_seconds"].documentation


def test_a_latency_without_values_has_no_quantiles(tmp_path: Path) -> None:
    empty = {"count": 0, "sum": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0}
    families = of(tmp_path, MINIMUM | {"latency": {"rtt_us": empty}})
    assert [sample.name for sample in families["spark_overlay_rtt_seconds"].samples] == [
        "spark_overlay_rtt_seconds_count",
        "spark_overlay_rtt_seconds_sum",
    ]


def test_the_breaker_is_in_one_state(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(TRIP="1", COOLDOWN="7")
    run.connect().silent = True
    assert run.step(2).reason == "timeout"
    assert run.step(2).reason == "cooldown"
    families = of(tmp_path, run.stats())
    states = {name: value(families, "breaker_state", state=name) for name in ("closed", "open", "half_open")}
    assert states == {"closed": 0, "open": 1, "half_open": 0}
    assert value(families, "breaker_trip_failures") == 1
    assert value(families, "breaker_cooldown_rounds") == 7
    assert value(families, "breaker_trips_total") == 1
    assert value(families, "breaker_cooldown_left_rounds") == 6


def test_an_unknown_state_of_the_breaker_is_told_as_such(tmp_path: Path) -> None:
    families = of(tmp_path, MINIMUM | {"breaker": {"state": "welded"}})
    assert value(families, "breaker_state", state="welded") == 1
    assert value(families, "breaker_state", state="closed") == 0


def test_the_agreement_of_a_real_shadow_run(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    stats = make_run(POLICY="shadow").eventful().stats()
    families = of(tmp_path, stats)
    shadow = stats["shadow"]
    assert shadow["eligible"] > 0
    assert value(families, "shadow_eligible_total") == shadow["eligible"]
    assert value(families, "shadow_mismatches_total") == shadow["mismatches"] == 1
    assert value(families, "shadow_first_mismatch_total", position="2") == 1
    assert value(families, "shadow_first_mismatch_total", position="none") == shadow["eligible"] - 1
    assert value(families, "shadow_agreed_by_position_total", position="1") == shadow["eligible"]
    assert value(families, "shadow_agreed_by_position_total", position="2") == shadow["eligible"] - 1
    assert value(families, "shadow_ineligible_total", reason="partial_window") == 1


def test_the_n_out_table_is_by_running_requests(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    stats = make_run().eventful().stats()
    assert stats["n_out_by_reqs"] == [0, 4, 4, 2]
    families = of(tmp_path, stats)
    assert [value(families, "n_out", requests=str(count)) for count in (1, 2, 3)] == [4, 4, 2]


def test_acceptance_by_context_is_exported_by_bucket(tmp_path: Path) -> None:
    bucket = {
        "from": 64,
        "below": 128,
        "verified": 5,
        "accepted": 7,
        "drafted": 20,
        "accepted_per_round": 1.4,
    }
    families = of(tmp_path, MINIMUM | {"acceptance": {"by_context": [bucket]}})
    labels = {"from": "64", "below": "128"}
    assert value(families, "acceptance_verified_by_context_total", **labels) == 5
    assert value(families, "acceptance_accepted_by_context_total", **labels) == 7
    assert value(families, "acceptance_drafted_by_context_total", **labels) == 20


def test_what_this_version_does_not_know_is_exported_too(tmp_path: Path) -> None:
    families = of(
        tmp_path,
        {
            "counters": {"moons_seen": 3, "fallback_eclipse": 2},
            "latency": {"orbit_us": {"count": 2, "p999": 5e5, "max": 1e6}},
            "acceptance": {"surprise": 4},
            "memory": {"device_bytes": 77, "nested": {"deep": 1.5}},
            "shadow": {"umbra": 8},
            "altitude": 9,
            "sunny": True,
        },
    )
    assert value(families, "moons_seen_total") == 3
    assert value(families, "fallbacks_total", reason="eclipse") == 2
    assert value(families, "orbit_seconds", quantile="0.999") == 0.5
    assert value(families, "orbit_max_seconds") == 1.0
    assert value(families, "acceptance_surprise") == 4
    assert value(families, "memory_device_bytes") == 77
    assert value(families, "memory_nested_deep") == 1.5
    assert value(families, "shadow_umbra") == 8
    assert value(families, "altitude") == 9
    assert value(families, "sunny") == 1


def test_texts_of_a_peer_are_escaped(tmp_path: Path) -> None:
    name = 'a"b\\c\nd'
    families = of(tmp_path, MINIMUM | {"worker": {"name": name, "fake_drafts": True}})
    (info,) = families["spark_overlay_info"].samples
    assert info.labels["worker"] == name
    assert value(families, "worker_fake_drafts") == 1


BROKEN = {
    "missing": None,
    "half": '{"counters": {"rounds": 1',
    "not an object": "[]",
    "sections missing": "{}",
    "a counter that is a text": json.dumps(MINIMUM | {"counters": {"rounds": "many"}}),
    "a counter that is true": json.dumps(MINIMUM | {"counters": {"rounds": True}}),
    "a number beyond any float": json.dumps(MINIMUM | {"counters": {"rounds": 10**400}}),
    "a section that is a list": json.dumps(MINIMUM | {"breaker": [1]}),
    "a list that is a section": json.dumps(MINIMUM | {"acceptance": {"accepted_by_position": {}}}),
    "a bucket that is none": json.dumps(MINIMUM | {"acceptance": {"by_context": [3]}}),
    "buckets that are a number": json.dumps(MINIMUM | {"acceptance": {"by_context": 3}}),
    "a latency without a count": json.dumps(MINIMUM | {"latency": {"rtt_us": {"p50": 1}}}),
    "two fields of one name": json.dumps(MINIMUM | {"a-b": 1, "a_b": 2}),
    "a counter named as a gauge": json.dumps(MINIMUM | {"moons": 1, "counters": {"moons": 1}}),
    "nested beyond reason": "[" * 100_000,
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_used_is_a_metric(tmp_path: Path, content: str | bytes | None) -> None:
    path = tmp_path / "s.json"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    families = scrape(path)
    assert value(families, "stats_readable") == 0
    age = {"spark_overlay_stats_age_seconds"} if content is not None else set()
    assert set(families) == {"spark_overlay_stats_readable"} | age, "half of the figures are none"
    result = CliRunner().invoke(main, ["stats", str(path), "--prometheus"])
    assert result.exit_code == 1
    assert "spark_overlay_stats_readable 0.0" in result.stdout
    assert result.stderr.startswith(f"spark-overlay: {path}: ")
    assert result.stderr.count("\n") == 1


def test_a_path_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        assert value(scrape(path), "stats_readable") == 0


NAMES = st.sampled_from(
    ["count", "p50", "p", "p\u00b2", "sum", "state", "from", "accepted", "fallback_\ud800", "a-b", "a_b", ""]
)
LEAVES = st.sampled_from([None, True, 0, -1, 10**400, 1.5, float("nan"), float("inf"), "", "open", "\ud800"])
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.dictionaries(NAMES, st.sampled_from([0, 1, 2.5]), max_size=4)
MOSTLY_NUMBERS = st.one_of(NUMBERS, NUMBERS, NUMBERS, NUMBERS, JSON)
LATENCY = st.builds(lambda values: {"count": 1} | values, NUMBERS)
STATS = st.fixed_dictionaries(
    {"counters": MOSTLY_NUMBERS, "latency": st.dictionaries(NAMES, LATENCY | MOSTLY_NUMBERS, max_size=3)},
    optional={
        "acceptance": st.fixed_dictionaries({"by_context": st.lists(NUMBERS)}) | MOSTLY_NUMBERS,
        "shadow": st.fixed_dictionaries({"ineligible": NUMBERS}) | MOSTLY_NUMBERS,
        **dict.fromkeys(("breaker", "worker", "policy", "\ud800", "x"), MOSTLY_NUMBERS),
    },
)


@hypothesis_settings(max_examples=200)
@given(stats=STATS)
def test_whatever_the_file_holds_is_metrics_or_unreadable(
    tmp_path_factory: pytest.TempPathFactory, stats: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_text(json.dumps(MINIMUM | stats))
    readable = value(scrape(path), "stats_readable")
    assert readable in (0, 1)
    event(f"readable {readable:g}")


def test_the_age_of_the_file_is_that_of_its_last_write(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_json(path, MINIMUM)
    os.utime(path, (1000.0, 1000.0))
    assert value(scrape(path, now_s=1042.5), "stats_age_seconds") == 42.5
    assert value(scrape(path, now_s=990.0), "stats_age_seconds") == 0, "a clock that went back"


def test_the_one_shot_text_is_what_a_scrape_gives(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    path = tmp_path / "s.json"
    write_json(path, make_run().eventful().stats())
    result = CliRunner().invoke(main, ["stats", str(path), "--prometheus"])
    assert result.exit_code == 0, result.output
    printed = {family.name: family for family in text_string_to_metric_families(result.stdout)}
    del printed["spark_overlay_stats_age_seconds"]
    scraped = scrape(path)
    del scraped["spark_overlay_stats_age_seconds"]
    assert printed == scraped


def test_watching_and_prometheus_exclude_each_other(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["stats", str(tmp_path / "s"), "--prometheus", "--watch"])
    assert result.exit_code == 2
    assert "exclude each other" in result.output


# --- serving ---


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9477", ("127.0.0.1", 9477)),
        ("[::1]:0", ("::1", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_to_listen_on(text: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9477",
        ":9477",
        "localhost:9477",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "1.2.3.4:-1",
        "::1:9477",
        "1.2.3.4:٣",
    ],
)
def test_an_address_that_cannot_be_listened_on_is_a_usage_error(tmp_path: Path, text: str) -> None:
    result = CliRunner().invoke(main, ["metrics", str(tmp_path / "s"), "--listen", text])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert repr(text) in result.output


def get(url: str) -> dict[str, Metric]:
    """The families at a URL."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        text = reply.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_each_scrape_reads_the_file_anew(tmp_path: Path, host: str) -> None:
    path, problems = tmp_path / "s.json", list[str]()
    registry = CollectorRegistry()
    registry.register(StatsCollector(path, problems.append))
    with serving(registry, host, 0) as url:
        assert value(get(url), "stats_readable") == 0
        write_json(path, MINIMUM | {"counters": {"rounds": 1}})
        assert value(get(url), "rounds_total") == 1
        write_json(path, MINIMUM | {"counters": {"rounds": 2}})
        assert value(get(url), "rounds_total") == 2
        path.unlink()
        assert value(get(url), "stats_readable") == 0
    assert [bool(problem) for problem in problems] == [True, False, False, True]


def test_a_client_that_says_nothing_holds_nobody_up_and_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.2)
    registry = CollectorRegistry()
    registry.register(StatsCollector(tmp_path / "s.json", lambda problem: None))
    with serving(registry, "127.0.0.1", 0) as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
            assert value(get(url), "stats_readable") == 0
            assert silent.recv(1) == b"", "closed by the server after its timeout"
    assert capfd.readouterr().err == ""


def test_a_port_in_use_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["metrics", str(tmp_path / "s"), "--listen", f"127.0.0.1:{port}"])
    assert result.exit_code == 2
    assert result.stderr == f"spark-overlay: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`spark-overlay metrics` on a file that is not there yet, in a process of its own."""
    program = "from spark_overlay.cli import main; main()"
    command = [sys.executable, "-c", program, "metrics", str(tmp_path / "s.json"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_exporter_serves_until_it_is_told_to_end(
    tmp_path: Path, exporter: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert exporter.stderr is not None
    url = exporter.stderr.readline().split()[-1]
    assert value(get(url), "stats_readable") == 0
    assert "No such file" in exporter.stderr.readline(), "said when it is found, once"
    assert value(get(url), "stats_readable") == 0
    write_json(tmp_path / "s.json", MINIMUM | {"counters": {"rounds": 5}})
    assert value(get(url), "rounds_total") == 5
    exporter.send_signal(number)
    assert exporter.wait(timeout=10) == 0
    assert exporter.stderr.read() == ""
