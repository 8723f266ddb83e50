"""An arm's process that does not do what it must: one sentence within a bound, and its start is abandoned."""

from pathlib import Path

import pytest
from one_check import CHECK, FACTS, READY, MakePlatform, MakeRun
from qualification.runs.folder import RunError
from qualification.runs.ledger import of_kind
from qualification.runs.platform import Platform
from qualification.runs.side import counting_start, run_side

OTHER_ARM = FACTS.replace("target_only", "remote")
WAIT = "read order"
"""An arm that waits for its next order."""
FAILS: dict[str, tuple[list[str], str]] = {
    "it cannot be started": (["exit 3"], "the arm's process ended with status 3: it said nothing"),
    "it says why": (["echo 'no such device' >&2", "exit 3"], "ended with status 3: no such device"),
    "it refuses": (
        ["""echo '{"event":"refused","text":"no room"}'"""],
        "the engine cannot be had: no room",
    ),
    "it speaks no JSON": (["echo hello"], "says what it must not: this is not JSON: b'hello'"),
    "it says a list": (["echo []"], "says what it must not: an object is needed"),
    "it says another thing": (["""echo '{"event":"opened"}'"""], "says 'opened' where 'ready' is due"),
    "its facts are none": (["""echo '{"event":"ready","facts":{}}'"""], "facts cannot be read: "),
    "it is of another arm": (
        [f"""echo '{{"event":"ready","facts":{OTHER_ARM}}}'"""],
        "the engine is of arm 'remote'",
    ),
    "it dies in a case": ([f"echo '{READY}'", WAIT, "kill -9 $$"], "ended with status -9"),
    "its engine fails": (
        [f"echo '{READY}'", WAIT, """echo '{"event":"failed","text":"out of memory"}'"""],
        "the engine failed: out of memory",
    ),
    "it ends a case without the request": (
        [f"echo '{READY}'", WAIT, """echo '{"event":"finished","name":"one.1"}'"""],
        "the case one.1 ended without the request 'one.a'",
    ),
    "it completes what nobody sent": (
        [f"echo '{READY}'", WAIT, """echo '{"event":"completed","request":"x"}'"""],
        "the engine failed: ",
    ),
}


@pytest.mark.parametrize("how", FAILS)
def test_it_is_one_sentence_and_an_abandoned_start(
    how: str, scripted: MakePlatform, make_run: MakeRun
) -> None:
    lines, sentence = FAILS[how]
    platform = scripted(lines)
    run = make_run(platform)
    with pytest.raises(RunError) as failed:
        run_side(run, platform, [CHECK], "off")
    assert str(failed.value).startswith("OFF, arm target_only: ")
    assert sentence in str(failed.value)
    (abandoned,) = of_kind(run.ledger.entries, "abandoned")
    assert sentence in abandoned["why"]
    assert counting_start(run.ledger.entries, "off", "target_only") is None
    assert not any(of_kind(run.ledger.entries, "side"))


def test_an_arm_that_says_nothing_is_given_up_in_time(scripted: MakePlatform, make_run: MakeRun) -> None:
    platform = scripted(["exec sleep 60"]).model_copy(update={"start_s": 0.2})
    with pytest.raises(RunError, match=r"the engine said nothing for 0\.2 s"):
        run_side(make_run(platform), platform, [CHECK], "off")


def test_an_arm_is_tried_again_under_another_start(
    tmp_path: Path, scripted: MakePlatform, make_run: MakeRun, simulator: Platform
) -> None:
    once = tmp_path / "once"
    platform = scripted([f'test -e {once} && exec {simulator.python} "$@"', f"touch {once}", "exit 3"])
    run = make_run(platform)
    run_side(run, platform, [CHECK], "off", attempts=2)
    first, second = (entry["start"] for entry in of_kind(run.ledger.entries, "start"))
    assert [entry["start"] for entry in of_kind(run.ledger.entries, "abandoned")] == [first]
    assert counting_start(run.ledger.entries, "off", "target_only") == second
    assert {entry["path"].split("/")[3] for entry in of_kind(run.ledger.entries, "evidence")} == {second}


def test_a_side_that_is_complete_is_not_run_again(make_run: MakeRun, simulator: Platform) -> None:
    run = make_run(simulator)
    run_side(run, simulator, [CHECK], "off")
    with pytest.raises(RunError, match="the side 'off' of this run is complete"):
        run_side(run, simulator, [CHECK], "off")
