"""What operators ask for takes effect between two rounds, once, and is told."""

import threading
from pathlib import Path

import pytest
from orders import Heard, Orders
from spark_overlay.control import keeper as keeper_module
from spark_overlay.control.files import changed
from spark_overlay.control.keeper import Keeper
from spark_overlay.control.reader import FileSource, Reading

DEADLINE_S = 20.0


class Rig:
    """A keeper that has looked once and found no file.  figures: written so often."""

    def __init__(self) -> None:
        self.orders, self.heard = Orders(), Heard()
        self.figures = 0
        self.now_s = 1000.0
        self.keeper = Keeper(self.orders, self.heard, self._count, lambda: self.now_s)
        self.look()

    def _count(self) -> None:
        self.figures += 1

    def look(self) -> list[str]:
        """One look at the file; what was told on account of it."""
        self.heard.told.clear()
        self.keeper.turn()
        return [word for word in self.heard.told if word != "resume" or self.keeper.paused]

    def told(self, name: str) -> object:
        return self.keeper.snapshot()[name]


def test_an_order_takes_effect_at_the_next_look_where_no_round_is_under_way() -> None:
    rig = Rig()
    rig.orders.say(state="paused", reason="a new kernel", written_at=5.0, written_by_uid=7)
    rig.now_s = 1234.5
    assert rig.look() == ["pause"]
    assert rig.keeper.paused
    assert rig.keeper.snapshot() == {
        "file": "/run/control.json",
        "present": True,
        "state": "paused",
        "since_s": 1234.5,
        "pending": False,
        "reason": "a new kernel",
        "rearm": 0,
        "depth_max": None,
        "written_at": 5.0,
        "written_by_uid": 7,
        "problem": "",
        "pauses": 1,
        "rearms": 0,
        "problems": 0,
    }
    rig.now_s = 1300.0
    rig.orders.say(reason="still")
    rig.look()
    assert rig.told("since_s") == 1234.5
    assert rig.told("pauses") == 1


def test_a_round_under_way_is_not_disturbed_and_the_next_one_has_the_order() -> None:
    rig = Rig()
    rig.keeper.begin_round()
    rig.orders.say(state="paused", depth_max=2)
    assert rig.look() == []
    assert not rig.keeper.paused
    assert rig.keeper.depth_max is None
    rig.keeper.end_round()
    rig.keeper.begin_round()
    assert rig.heard.told == ["pause"]
    assert rig.keeper.paused
    assert rig.keeper.depth_max == 2


def test_the_figures_are_written_also_where_a_round_settled_the_order() -> None:
    rig = Rig()
    rig.keeper.begin_round()
    rig.orders.say(state="paused")
    rig.look()
    written = rig.figures
    rig.keeper.end_round()
    rig.keeper.begin_round()
    rig.look()
    assert rig.figures == written + 1
    rig.look()
    assert rig.figures == written + 1


def test_the_figures_are_written_when_the_attempt_after_an_order_is_over() -> None:
    rig = Rig()
    rig.heard.on_order = True
    rig.orders.say(rearm=1)
    rig.look()
    assert rig.told("pending") is True
    written = rig.figures
    rig.look()
    assert rig.figures == written
    rig.heard.on_order = False
    rig.look()
    assert rig.told("pending") is False
    assert rig.figures == written + 1


def test_every_value_that_differs_is_one_rearm() -> None:
    rig = Rig()
    rig.orders.say(rearm=1)
    assert rig.look() == ["rearm"]
    rig.orders.say(reason="nothing new")
    assert rig.look() == []
    rig.orders.say(rearm=9)
    assert rig.look() == ["rearm"]
    rig.orders.say(rearm=3)
    assert rig.look() == ["rearm"]
    assert (rig.told("rearm"), rig.told("rearms")) == (3, 3)


def test_what_stood_in_the_file_when_the_engine_started_is_no_rearm() -> None:
    orders, heard = Orders(), Heard()
    orders.say(rearm=41, state="paused")
    keeper = Keeper(orders, heard)
    keeper.turn()
    assert heard.told == ["pause"]
    orders.say(rearm=42)
    keeper.turn()
    assert heard.told == ["pause", "pause", "rearm"]


def test_a_rearm_while_paused_leaves_it_paused() -> None:
    rig = Rig()
    rig.orders.say(state="paused", rearm=1)
    assert rig.look() == ["pause", "rearm"]
    assert rig.keeper.paused


def test_a_file_that_goes_away_resumes_and_rearms_nothing_and_its_successor_can_rearm() -> None:
    rig = Rig()
    rig.orders.say(state="paused", rearm=5, depth_max=1)
    rig.look()
    rig.orders.remove()
    rig.look()
    assert rig.heard.told == ["resume"]
    assert not rig.keeper.paused
    assert rig.keeper.depth_max is None
    assert (rig.told("rearms"), rig.told("present")) == (1, False)
    rig.orders.say(rearm=6)
    assert rig.look() == ["rearm"]


def test_a_file_that_cannot_be_obeyed_changes_nothing_but_the_problem(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.orders.say(state="paused")
    rig.look()
    for _ in range(3):
        rig.orders.break_it("state is 'x\x1b'")
        assert rig.look() == []
    assert rig.keeper.paused
    assert rig.told("problem") == "state is 'x\x1b'"
    assert rig.told("problems") == 1
    assert caplog.text.count("what it asked for before stays: paused") == 1
    assert "\x1b" not in caplog.text
    rig.orders.say(state="active")
    rig.look()
    assert rig.told("problem") == ""
    assert not rig.keeper.paused


def test_a_file_that_was_broken_at_the_start_can_rearm_once_it_is_whole() -> None:
    orders, heard = Orders(), Heard()
    orders.break_it()
    keeper = Keeper(orders, heard)
    keeper.turn()
    assert keeper.snapshot()["state"] == "active"
    orders.say(rearm=1)
    keeper.turn()
    assert "rearm" in heard.told


def test_each_change_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig = Rig()
    rig.orders.say(state="paused", reason="a new\nkernel", written_by_uid=7)
    rig.look()
    rig.orders.say(state="active", rearm=1, reason="", depth_max=3)
    rig.look()
    rig.orders.say(depth_max=None)
    rig.look()
    rig.orders.say(reason="nothing that changes anything")
    rig.look()
    said = [record.getMessage().removeprefix("remote DSpark control: ") for record in caplog.records]
    assert said == [
        "active (no file /run/control.json)",
        "paused (/run/control.json, by user 7: a new\ufffdkernel)",
        "rearmed, resumed, 3 draft positions at most (/run/control.json, by user 7)",
        "no cap on draft positions (/run/control.json, by user 7)",
    ]


# --- the thread ---


def test_the_thread_settles_while_no_round_comes_and_ends_when_told(tmp_path: Path) -> None:
    path, settled = tmp_path / "control.json", threading.Semaphore(0)
    keeper = Keeper(FileSource(path), Heard(), settled.release)
    keeper.start()
    keeper.start()
    try:
        assert settled.acquire(timeout=DEADLINE_S)
        changed(path, lambda record: record.changed(state="paused"))
        assert settled.acquire(timeout=DEADLINE_S)
        assert keeper.paused
    finally:
        keeper.close()
    assert not any(thread.name == "spark-overlay-control" for thread in threading.enumerate())


def test_a_defect_costs_one_look_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper_module, "LOOK_EVERY_S", 0.001)
    orders, heard, looked = Orders(), Heard(), threading.Event()
    keeper = Keeper(orders, heard)
    keeper.turn()
    whole_poll = orders.poll
    broken = [RuntimeError("first"), RuntimeError("first"), RuntimeError("first")]

    def poll() -> Reading | None:
        if broken:
            raise broken.pop()
        looked.set()
        return whole_poll()

    monkeypatch.setattr(orders, "poll", poll)
    thread = threading.Thread(target=keeper._run)
    thread.start()
    try:
        assert looked.wait(DEADLINE_S)
    finally:
        keeper.close()
        thread.join(DEADLINE_S)
    assert caplog.text.count("a defect of the overlay: RuntimeError: first") == 1
