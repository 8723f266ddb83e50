"""Tools that somebody else wrote: what they print, how they are called, and how they are measured in turn with ours.

The samples were recorded from the tools themselves: sockperf 3.7, qperf 0.4.11, UCX 1.13.1, perftest 4.5 on soft-RoCE.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ofl.bench import peer_output, peers
from ofl.bench.compare import TRIES, Compared, compare
from ofl.bench.figures import Case, Latency, Mode, Result
from ofl.bench.pairs import Pair, Tool
from ofl.bench.report import compared_json, compared_table
from ofl.errors import TransportError

SAMPLES = Path(__file__).parent / "bench_samples"
PORT = peers.RdmaPort("rxe0", 1, 3)


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "read", "figure"),
    [
        ("sockperf", peer_output.sockperf_round_trip_ns, 4_453),
        ("qperf_tcp_lat", peer_output.qperf_round_trip_ns, 2 * 3_949),
        ("qperf_tcp_bw", peer_output.qperf_bytes_per_s, 607_343_525),
        ("ucx_tag_lat", peer_output.ucx_round_trip_ns, 2 * 333),
        # 13,631,488 bytes in 19,912.376 us each are 652.86 MiB a second.
        ("ucx_tag_bw", peer_output.ucx_bytes_per_s, 652.86 * 1_048_576),
        ("ib_send_lat", peer_output.perftest_round_trip_ns, 2 * 8_050_800),
        ("ib_write_lat", peer_output.perftest_round_trip_ns, 2 * 18_610),
        ("ib_send_lat_events", peer_output.perftest_round_trip_ns, 2 * 3_076_600),
        ("ib_write_bw", peer_output.perftest_bytes_per_s, 13.01 * 1_048_576),
    ],
)
def test_a_tools_figure_is_found_with_its_unit(
    name: str, read: Callable[[str], float], figure: float
) -> None:
    assert read(sample(name)) == pytest.approx(figure, rel=1e-12)


def test_the_unit_of_a_bandwidth_agrees_with_the_time_that_the_tool_prints_beside_it() -> None:
    assert peer_output.ucx_bytes_per_s(sample("ucx_tag_bw")) == pytest.approx(
        13_631_488 / 19_912.376e-6, rel=1e-4
    )


def test_another_percentile_of_sockperf_can_be_asked_for() -> None:
    assert peer_output.sockperf_round_trip_ns(sample("sockperf"), "99.900") == 2_933_817


READERS = [
    peer_output.sockperf_round_trip_ns,
    peer_output.qperf_round_trip_ns,
    peer_output.qperf_bytes_per_s,
    peer_output.ucx_round_trip_ns,
    peer_output.ucx_bytes_per_s,
    peer_output.perftest_round_trip_ns,
    peer_output.perftest_bytes_per_s,
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", ["", "connection refused\n", "a,b\n1,2\n", "#bytes\n1\n"])
def test_what_is_no_result_is_never_read_as_one(read: Callable[[str], float], text: str) -> None:
    with pytest.raises(ValueError, match="in what the tool printed"):
        read(text)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.txt")))
def test_a_tools_output_is_not_read_as_anothers(read: Callable[[str], float], name: str) -> None:
    """A reader finds its own tool's figure, of its own kind, or none."""
    own = {
        "sockperf": ["sockperf_round_trip_ns"],
        "qperf_tcp_lat": ["qperf_round_trip_ns"],
        "qperf_tcp_bw": ["qperf_bytes_per_s"],
        "ucx_tag_lat": ["ucx_round_trip_ns", "ucx_bytes_per_s"],  # both tests print both columns
        "ucx_tag_bw": ["ucx_round_trip_ns", "ucx_bytes_per_s"],
        "ib_write_bw": ["perftest_bytes_per_s"],
    }.get(name, ["perftest_round_trip_ns"])
    if read.__name__ in own:
        assert read(sample(name)) > 0
        return
    with pytest.raises(ValueError, match="in what the tool printed"):
        read(sample(name))


@pytest.mark.parametrize("name", ["ib_send_lat", "ib_write_bw", "ucx_tag_lat"])
def test_a_row_that_was_cut_off_is_no_result(name: str) -> None:
    read = peer_output.perftest_round_trip_ns if name == "ib_send_lat" else peer_output.perftest_bytes_per_s
    read = peer_output.ucx_round_trip_ns if name == "ucx_tag_lat" else read
    lines = sample(name).splitlines()
    row = max(number for number, line in enumerate(lines) if line.strip()[:1].isdigit())
    cut = [*lines[:row], lines[row][:9]]
    with pytest.raises(ValueError, match="in what the tool printed"):
        read("\n".join(cut))


# --- which tool beside which case ---


def result(case: Case, each_ns: int = 1_000_000) -> Result:
    """Ten transfers."""
    return Result(case, 50, Latency.of([each_ns] * 10), 10 * each_ns, 0.0, 0.0)


def shown(scheme: str, sizes: list[int], spins: list[int]) -> list[tuple[str, int, int, str]]:
    made = peers.comparisons(scheme, "10.0.0.1", sizes, spins, PORT if scheme == "rdma" else None)
    return [(one.case.name, one.case.nbytes, one.spin_us, one.tool.command) for one in made]


def test_each_scheme_has_its_tools() -> None:
    assert shown("tcp", [0, 64, 75_000], [50, 0]) == [
        ("echo", 64, 50, "sockperf"),  # which takes 14 to 65506 bytes
        ("echo", 64, 0, "sockperf"),
        ("to server", 75_000, 0, "qperf"),
        ("to client, placed", 75_000, 0, "qperf"),
    ]
    assert shown("shm", [0, 8, 75_000], [50]) == [
        ("echo", 8, 50, "ucx_perftest"),
        ("echo", 75_000, 50, "ucx_perftest"),
        ("to server", 75_000, 50, "ucx_perftest"),
        ("to client, placed", 75_000, 50, "ucx_perftest"),
    ]
    assert shown("rdma", [64, 75_000], [50, 0]) == [
        ("echo", 64, 50, "ib_send_lat"),
        ("echo", 64, 50, "ib_write_lat"),
        ("echo", 75_000, 50, "ib_send_lat"),
        ("echo", 75_000, 50, "ib_write_lat"),
        ("echo", 64, 0, "ib_send_lat"),
        ("echo", 75_000, 0, "ib_send_lat"),
        ("to server", 75_000, 0, "ib_write_bw"),
        ("to server, lent", 75_000, 0, "ib_write_bw"),
        ("to client, placed", 75_000, 0, "ib_write_bw"),
    ]


def pair_of(scheme: str, name: str, spin_us: int, size: int) -> Pair:
    for one in peers.comparisons(scheme, "10.0.0.1", [size], [spin_us], PORT):
        if one.tool.command == name:
            return one.pair(2.0, result(one.case))
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("scheme", "tool", "size", "words"),
    [
        ("tcp", "sockperf", 64, "--nonblocked"),
        ("shm", "ucx_perftest", 64, "-E"),
        ("rdma", "ib_send_lat", 64, "--events"),
    ],
)
def test_like_is_compared_with_like(scheme: str, tool: str, size: int, words: str) -> None:
    looking, sleeping = pair_of(scheme, tool, 50, size), pair_of(scheme, tool, 0, size)
    # sockperf sleeps unless told otherwise, the others look unless told otherwise.
    assert (words in looking.client) == (tool == "sockperf")
    assert (words in sleeping.client) == (tool != "sockperf")


def test_tools_get_the_size_the_address_and_a_number_that_fills_the_time() -> None:
    assert pair_of("tcp", "qperf", 0, 75_000) == Pair(
        peers.QPERF,
        ["-lp", "{port}"],
        ["-lp", "{port}", "-t", "2", "-m", "75000", "-uu", "10.0.0.1", "tcp_bw"],
        {},
    )
    # At a millisecond each, two seconds are 2,000 transfers.
    perftest = pair_of("rdma", "ib_write_bw", 50, 75_000)
    both = ["-d", "rxe0", "-i", "1", "-x", "3", "-s", "75000", "-n", "2000", "-p", "{port}", "-F"]
    assert (perftest.server, perftest.client) == (both, [*both, "10.0.0.1"])
    ucx = pair_of("shm", "ucx_perftest", 50, 64)
    assert ucx.env == {"UCX_TLS": "shm,self"}
    assert ucx.client[ucx.client.index("-n") + 1] == "2000"


@pytest.mark.parametrize(("each_ns", "count"), [(10_000_000_000, 5), (1, 1_000_000), (1_000_000, 2_000)])
def test_the_number_of_transfers_is_bounded(each_ns: int, count: int) -> None:
    assert peers.pace(2.0, result(Case(Mode.ECHO, 64), each_ns)) == count


# --- running and comparing ---

LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"latency = 500 ns")
    server.accept()
"""
CONNECT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    print(connection.recv(99).decode())
"""
FAKE = Tool(sys.executable, "python3")


def fake_pair(server: str = LISTEN, client: str = CONNECT) -> Pair:
    """Two programs in place of a tool's; the server takes one connection, as some tools do."""
    return Pair(FAKE, ["-c", server, "{port}"], ["-c", client, "{port}"], {})


def comparison(pair: Pair, case: Case | None = None, statistic: str = "p50") -> peers.Comparison:
    return peers.Comparison(
        case or Case(Mode.ECHO, 64),
        50,
        FAKE,
        "tcp_lat",
        statistic,
        lambda _seconds, _ours: pair,
        peer_output.qperf_round_trip_ns,
    )


def test_ours_and_the_peer_are_measured_in_turn() -> None:
    order: list[str] = []
    times = iter([3_000_000, 1_000_000, 2_000_000])

    def measure(seconds: float) -> Result:
        order.append(f"ours {seconds}")
        return result(Case(Mode.ECHO, 64), next(times))

    def pair(_seconds: float, ours: Result) -> Pair:
        order.append(f"peer after {ours.latency.p50_ns}")
        return fake_pair()

    one = comparison(fake_pair())
    one = peers.Comparison(one.case, 50, FAKE, "tcp_lat", "p50", pair, one.read)
    compared = compare(one, measure, rounds=3, seconds=0.5)
    assert order == [
        "ours 0.5",
        "peer after 3000000",
        "ours 0.5",
        "peer after 1000000",
        "ours 0.5",
        "peer after 2000000",
    ]
    assert compared.ours == (3_000_000, 1_000_000, 2_000_000)
    assert compared.peers == (1_000, 1_000, 1_000)
    assert (compared.best(compared.ours), compared.worst(compared.ours)) == (1_000_000, 3_000_000)
    assert compared.ratio == 1_000


def test_best_is_the_smallest_time_and_the_largest_bandwidth() -> None:
    case = Case(Mode.TO_CLIENT, 13 << 20, placed=True)
    bandwidth = Compared(comparison(fake_pair(), case, "bytes_per_s"), (1e9, 3e9, 2e9), (4e9, 6e9, 5e9))
    assert (bandwidth.best(bandwidth.ours), bandwidth.worst(bandwidth.ours), bandwidth.ratio) == (
        3e9,
        1e9,
        0.5,
    )
    rows = compared_table([bandwidth]).splitlines()
    assert "MB/s  3000.00  1000.00  6000.00  4000.00  0.50" in " ".join(rows[1].split()).replace(" ", "  ")
    assert compared_json(bandwidth)["ofl"] == [1e9, 3e9, 2e9]
    assert compared_json(bandwidth)["unit"] == "bytes_per_s"


@pytest.mark.parametrize(
    ("server", "client", "sentence"),
    [
        ("raise SystemExit(3)", CONNECT, "ended with status 3 before it listened"),
        (LISTEN, "raise SystemExit('no route to anybody')", "ended with status 1: no route to anybody"),
        (LISTEN, "print('latency = 5 pigeons')", "no qperf latency in ns in what the tool printed"),
    ],
)
def test_a_tool_that_fails_is_named_and_leaves_no_process(server: str, client: str, sentence: str) -> None:
    with pytest.raises(TransportError, match=sentence):
        compare(
            comparison(fake_pair(server, client)),
            lambda _seconds: result(Case(Mode.ECHO, 64)),
            rounds=1,
            seconds=0.1,
        )


def test_a_tool_that_fails_now_and_then_is_run_again_a_few_times(tmp_path: Path) -> None:
    client = f"""
import pathlib, socket, sys
tries = pathlib.Path({str(tmp_path / "tries")!r})
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    print(connection.recv(99).decode() if len(tries.read_text()) > FAILING else "Summary: no valid observations")
"""

    def compared(failing: int) -> Compared:
        pair = fake_pair(LISTEN, client.replace("FAILING", str(failing)))
        return compare(comparison(pair), lambda _seconds: result(Case(Mode.ECHO, 64)), rounds=1, seconds=0.1)

    assert compared(TRIES - 1).peers == (1_000,)
    (tmp_path / "tries").unlink()
    with pytest.raises(TransportError, match="no qperf latency in ns"):
        compared(TRIES)


def test_a_tool_that_is_missing_is_named_with_its_package() -> None:
    assert Tool("no-such-tool", "some-package").missing == (
        "no-such-tool is not installed (Debian package some-package)"
    )
    assert FAKE.missing == ""
