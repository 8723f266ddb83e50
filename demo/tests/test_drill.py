"""The drill gives each order once, and only when what it waits for was really seen."""

from demo.drill import Drill, Order, Phase, Seen


def test_the_worker_is_killed_at_the_given_round_and_once() -> None:
    drill = Drill(kill_round=20)
    assert drill.watch(Seen(70, 19, 0, 0)) is None
    assert drill.watch(Seen(74, 20, 0, 0)) is Order.KILL
    assert drill.watch(Seen(74, 20, 0, 0)) is None


def test_it_is_started_again_only_after_sixteen_tokens_and_a_counted_fallback() -> None:
    drill = Drill(kill_round=1)
    drill.watch(Seen(10, 1, 0, 0))
    assert drill.watch(Seen(25, 1, 5, 0)) is None
    assert drill.watch(Seen(40, 1, 0, 0)) is None
    assert drill.watch(Seen(26, 1, 6, 0)) is Order.START


def test_it_is_done_only_after_a_hundred_good_rounds_and_a_resync() -> None:
    drill = Drill(kill_round=1)
    drill.watch(Seen(10, 1, 0, 30))
    drill.watch(Seen(30, 1, 9, 30))
    drill.watch(Seen(41, 1, 20, 30))
    drill.watch(Seen(45, 2, 20, 30))
    assert drill.watch(Seen(400, 101, 20, 30)) is None
    assert drill.watch(Seen(396, 100, 20, 158)) is None
    assert drill.watch(Seen(400, 101, 20, 158)) is Order.STOP
    assert drill.phase is Phase.DONE
    assert drill.summary() == {
        "completed": True,
        "killed_at_round": 1,
        "tokens_without_worker": 35,
        "fallback_rounds": 20,
        "resync_rows": 128,
        "good_rounds_after_restart": 100,
    }


def test_a_drill_that_saw_too_little_is_not_completed() -> None:
    drill = Drill(kill_round=5)
    drill.watch(Seen(10, 3, 0, 0))
    assert drill.summary()["completed"] is False
