"""What `ofl probe` says of RDMA: devices as the kernel shows them, the choice for an endpoint, the limit of memory."""

from pathlib import Path
from typing import Any

import pytest
from ofl import hostinfo, native, probe, probe_text, rdma_devices
from ofl.rdma_devices import Device, Gid, Port

V2, V1 = "RoCE v2", "IB/RoCE v1"
LINK_LOCAL = "fe80:0000:0000:0000:5054:00ff:fe77:0001"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a4d:0001"  # 10.77.0.1
ULA = "fd77:0000:0000:0000:0000:0000:0000:0001"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def make_port(
    root: Path, device: str, number: int, gids: dict[int, tuple[str, str, str]], state: str = "4: ACTIVE"
) -> None:
    """One port as the kernel lays it out; a GID without a kind has unreadable attributes, as unused entries have."""
    port = root / device / "ports" / str(number)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "gid_attrs" / "ndevs").mkdir()
    (port / "gids").mkdir()
    (port / "state").write_text(f"{state}\n")
    (port / "link_layer").write_text("Ethernet\n")
    (port / "rate").write_text("100 Gb/sec (4X EDR)\n")
    for index, (gid, kind, netdev) in gids.items():
        (port / "gids" / str(index)).write_text(f"{gid}\n")
        if kind:
            (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")
            (port / "gid_attrs" / "ndevs" / str(index)).write_text(f"{netdev}\n")
        else:
            (port / "gid_attrs" / "types" / str(index)).mkdir()  # cannot be read as a file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two devices, the second with two ports."""
    make_port(
        tmp_path,
        "rocep1",
        1,
        {0: (LINK_LOCAL, V1, "eth0"), 1: (MAPPED, V1, "eth0"), 10: (MAPPED, V2, "eth0")},
    )
    make_port(tmp_path, "mlx5_0", 1, {0: (ZERO, "", "")})
    make_port(tmp_path, "mlx5_0", 2, {0: (LINK_LOCAL, V2, "eth1"), 3: (ULA, V2, "eth1"), 4: (ZERO, "", "")})
    return tmp_path


def test_devices_ports_and_gids_are_listed_in_order_without_unused_entries(root: Path) -> None:
    assert rdma_devices.devices(root) == [
        Device(
            "mlx5_0",
            (
                Port(1, "4: ACTIVE", "Ethernet", "100 Gb/sec (4X EDR)", ()),
                Port(
                    2,
                    "4: ACTIVE",
                    "Ethernet",
                    "100 Gb/sec (4X EDR)",
                    (Gid(0, LINK_LOCAL, V2, "eth1"), Gid(3, ULA, V2, "eth1")),
                ),
            ),
        ),
        Device(
            "rocep1",
            (
                Port(
                    1,
                    "4: ACTIVE",
                    "Ethernet",
                    "100 Gb/sec (4X EDR)",
                    (Gid(0, LINK_LOCAL, V1, "eth0"), Gid(1, MAPPED, V1, "eth0"), Gid(10, MAPPED, V2, "eth0")),
                ),
            ),
        ),
    ]


def test_a_host_without_rdma_has_no_devices(tmp_path: Path) -> None:
    assert rdma_devices.devices(tmp_path / "absent") == []
    assert rdma_devices.find("10.77.0.1", tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("10.77.0.1", ("rocep1", 1, 10)),  # RoCE v2, though v1 comes first
        ("fd77::1", ("mlx5_0", 2, 3)),
        ("fe80::5054:ff:fe77:1%eth1", ("mlx5_0", 2, 0)),
        ("10.77.0.2", None),
        ("127.0.0.1", None),
    ],
)
def test_an_address_is_found_among_the_gids(
    root: Path, address: str, found: tuple[str, int, int] | None
) -> None:
    assert rdma_devices.find(address, root) == found


@pytest.mark.parametrize("kind", [V2, V1])
def test_of_two_ports_with_one_gid_the_one_that_is_down_comes_last(tmp_path: Path, kind: str) -> None:
    make_port(tmp_path, "mlx5_0", 1, {3: (MAPPED, V2, "bond0")}, "1: DOWN")
    make_port(tmp_path, "mlx5_1", 1, {3: (MAPPED, kind, "bond0")})
    assert rdma_devices.find("10.77.0.1", tmp_path) == ("mlx5_1", 1, 3)


def test_the_port_that_the_library_chose_is_read_from_its_words() -> None:
    # A text that gid_choice_test.cpp expects has this form.
    words = "mlx5_1 port 2 GID 3 10.0.1.1 (RoCE v2 on bond0) is the GID of 10.0.1.1 (bond0)"
    assert rdma_devices.chosen(words) == ("mlx5_1", 2, 3)
    assert rdma_devices.chosen(f"no RDMA device carries 10.0.1.1 (bond0); {words}") is None


def report_of(monkeypatch: pytest.MonkeyPatch, root: Path) -> dict[str, Any]:
    listed = rdma_devices.devices(root)
    monkeypatch.setattr(rdma_devices, "devices", lambda: listed)
    return probe.host_report()


def test_people_see_each_port_and_gid(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = probe_text.render(report_of(monkeypatch, root)).splitlines()
    begin = lines.index("RDMA device mlx5_0 port 1: 4: ACTIVE, Ethernet, 100 Gb/sec (4X EDR)")
    assert lines[begin + 1 : begin + 4] == [
        "RDMA device mlx5_0 port 2: 4: ACTIVE, Ethernet, 100 Gb/sec (4X EDR)",
        f"  GID 0: {LINK_LOCAL} (RoCE v2) on eth1",
        f"  GID 3: {ULA} (RoCE v2) on eth1",
    ]


def test_a_host_without_devices_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = probe_text.render(report_of(monkeypatch, tmp_path / "absent"))
    assert "RDMA devices: none (the kernel shows none in /sys/class/infiniband)" in text


# --- the limit of locked memory ---


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host where every address can do RDMA."""
    monkeypatch.setattr(native, "rdma_choice", lambda address: (True, f"rxe0 port 1 for {address}"))


def limit(monkeypatch: pytest.MonkeyPatch, memlock_bytes: int, *, capable: bool = False) -> None:
    monkeypatch.setattr(hostinfo, "limits", lambda: {"nofile": 1024, "memlock_bytes": memlock_bytes})
    monkeypatch.setattr(probe, "_may_lock_at_will", lambda: capable)


def test_an_rdma_endpoint_shows_the_choice_and_what_the_limit_means(
    chosen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 8_388_608)
    route = probe.endpoint_report("rdma://127.0.0.1:9")
    assert route["ok"] is True
    assert route["rdma"] == "rxe0 port 1 for 127.0.0.1"
    assert "may lock 8388608 bytes" in route["memlock"]
    assert "a connection registers 1572864 bytes for itself" in route["memlock"]  # 64 + 32 of 16 KiB
    assert "`ofl doctor`" in route["memlock"]
    assert "`ulimit -l unlimited`" in route["memlock"]
    text = probe_text.render(probe.host_report() | {"route": route})
    assert "RDMA from 127.0.0.1: rxe0 port 1 for 127.0.0.1" in text
    assert f"memlock: {route['memlock']}" in text


@pytest.mark.parametrize(("memlock_bytes", "capable"), [(-1, False), (8_388_608, True)])
def test_the_hint_is_left_out_where_the_limit_does_not_hold(
    chosen: None, monkeypatch: pytest.MonkeyPatch, memlock_bytes: int, capable: bool
) -> None:
    limit(monkeypatch, memlock_bytes, capable=capable)
    assert "memlock" not in probe.endpoint_report("rdma://127.0.0.1:9")


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:9", "shm://name"])
def test_the_hint_is_left_out_where_rdma_is_not_in_use(
    chosen: None, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    limit(monkeypatch, 8_388_608)
    assert "memlock" not in probe.endpoint_report(endpoint)


def test_whether_the_limit_holds_is_read_from_the_kernel() -> None:
    """Root may lock at will, but for a container that takes the capability away."""
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    assert probe._may_lock_at_will() == bool(effective & 1 << 14)
