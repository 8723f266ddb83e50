"""Statements with the right fields that contradict themselves."""

import copy
from typing import Any

from receipt_corpus.bench import Bench
from receipt_corpus.mutants import Apply, Mutant
from receipt_corpus.of_fields import field

PASS, FAIL, HOLD, LACKS, RANKS = range(5)


def _subject_twice(which: str) -> Apply:
    """In every receipt, so that they agree."""

    def apply(bench: Bench) -> None:
        for statement in bench.statements:
            more = copy.deepcopy(statement["subject"][-1])
            if which == "digest":
                more["name"] += ".copy"
            statement["subject"].append(more)

    return apply


def _declared(change: Any) -> Apply:
    def apply(bench: Bench) -> None:
        names = bench.predicate()["declared_checks"]
        bench.predicate()["declared_checks"] = change(names)

    return apply


def _subcase_twice(bench: Bench) -> None:
    predicate = bench.predicate()
    for part in (predicate["check"]["subcases"], predicate["conclusions"]):
        part.append(copy.deepcopy(part[-1]))
    predicate["coverage"] = {"declared": 3, "passed": 1, "failed": 0, "not_run": 0, "hold": 2}
    bench.redeclare()


def _asks_less(bench: Bench) -> None:
    bench.predicate()["check"]["subcases"][0]["asks"] = "Is anything there?"


def _other_variable(bench: Bench) -> None:
    bench.predicate()["arm_variable"] = "nothing in particular"


def _no_subcases(bench: Bench) -> None:
    predicate = bench.predicate()
    predicate["check"]["subcases"] = predicate["conclusions"] = []
    predicate["coverage"] = dict.fromkeys(predicate["coverage"], 0)
    bench.redeclare()


def _unseen(bench: Bench) -> None:
    bench.predicate()["conclusions"][1] |= {"found": "not seen", "observed": 0}
    bench.predicate()["coverage"] |= {"passed": 1, "not_run": 1}


def _concluded_less(bench: Bench) -> None:
    del bench.predicate()["conclusions"][1]
    bench.predicate()["coverage"] |= {"passed": 1, "hold": 1}


def _reversed(bench: Bench) -> None:
    bench.predicate()["conclusions"].reverse()


def _verdict(place: int, verdict: str) -> Apply:
    return lambda bench: bench.predicate(place).update(verdict=verdict)


def _no_notes(bench: Bench) -> None:
    bench.predicate(HOLD)["notes"] = []


def _nothing_concluded(bench: Bench) -> None:
    predicate = bench.predicate(HOLD)
    predicate["conclusions"] = predicate["notes"] = []
    predicate["coverage"] |= {"passed": 0, "hold": 2}


def fresh(bench: Bench, place: int = PASS) -> dict[str, Any]:
    """The arms of a receipt, with engine starts that no other receipt tells of, and evidence that fits."""
    bench.observed[place] = lambda arms: None
    arms: dict[str, Any] = bench.predicate(place)["arms"]
    arms["off"]["starts"], arms["on"]["starts"] = ["fresh-off"], ["fresh-on"]
    return arms


def _same_arm(bench: Bench) -> None:
    arms = fresh(bench)
    arms["on"]["arm"] = arms["off"]["arm"]


def _same_but_name(bench: Bench) -> None:
    arms = fresh(bench)
    arms["on"]["arm"] = arms["off"]["arm"] | {"name": "remote_too"}
    bench.run["arms"].append(arms["on"]["arm"])


def _no_start(bench: Bench) -> None:
    bench.predicate()["arms"]["on"]["starts"] = []


def _no_facts(bench: Bench) -> None:
    fresh(bench)["off"]["platform"] = None
    bench.predicate()["evidence_class"] = "rehearsal"


def _platform_of_on(**fields: str) -> Apply:
    return lambda bench: fresh(bench)["on"]["platform"].update(fields)


def _driver_of_on(bench: Bench) -> None:
    fresh(bench)["on"]["platform"]["devices"][0]["driver"] = "570.1"


def _one_device(bench: Bench) -> None:
    fresh(bench, HOLD)["on"]["platform"]["devices"].pop()


def _start_twice(bench: Bench) -> None:
    bench.predicate()["arms"]["off"]["starts"] = ["off-1-a", "off-1-a"]


def _start_in_both(bench: Bench) -> None:
    fresh(bench)["on"]["starts"] = ["fresh-off"]


def _both_platforms(**fields: str) -> Apply:
    """The receipt goes on saying native."""

    def apply(bench: Bench) -> None:
        for side in fresh(bench).values():
            side["platform"].update(fields)

    return apply


def _both_devices(**fields: str) -> Apply:
    def apply(bench: Bench) -> None:
        for side in fresh(bench).values():
            side["platform"]["devices"][0].update(fields)

    return apply


def _lacks_poses(bench: Bench) -> None:
    bench.predicate(LACKS)["evidence_class"] = "native"


def _evidence_twice(bench: Bench) -> None:
    evidence = bench.predicate()["evidence"]
    evidence.append(evidence[0])


OPENED = "2026-11-01T10:00:00Z"
MUTANTS = [
    Mutant("a subject's name twice", "duplicate_subject", _subject_twice("name")),
    Mutant("one digest under two names", "duplicate_subject", _subject_twice("digest")),
    Mutant("declared checks out of order", "declared_list", _declared(lambda names: names[::-1])),
    Mutant("a declared check twice", "declared_list", _declared(lambda names: [*names, names[-1]])),
    Mutant("a subcase that asks for less", "declaration", _asks_less),
    Mutant("another arm variable", "declaration", _other_variable),
    Mutant("the digest of another declaration", "declaration", field("check", "digest", value="0" * 64)),
    Mutant("a subcase declared twice", "subcases", _subcase_twice),
    Mutant("a threshold not used", "thresholds", lambda bench: bench.predicate()["thresholds"].pop()),
    Mutant("thresholds out of order", "thresholds", lambda bench: bench.predicate()["thresholds"].reverse()),
    Mutant(
        "a threshold that nobody declared",
        "thresholds",
        lambda bench: bench.predicate()["thresholds"].append({"name": "zeal", "value": 1}),
    ),
    Mutant("one passed too many", "coverage_sum", field("coverage", "passed", value=3)),
    Mutant("one declared too few", "coverage_sum", field("coverage", "declared", value=1)),
    Mutant(
        "one passed counted as not run",
        "coverage_counts",
        lambda b: b.predicate()["coverage"].update(passed=1, not_run=1),
    ),
    Mutant(
        "one held that was not",
        "coverage_counts",
        lambda b: b.predicate()["coverage"].update(declared=3, hold=1),
    ),
    Mutant("a pass with nothing observed", "empty_coverage", field("conclusions", 0, "observed", value=0)),
    Mutant("a pass without subcases", "empty_coverage", _no_subcases),
    Mutant("a failure that says it passed", "verdict", _verdict(FAIL, "PASS")),
    Mutant("a failure that says it did not run", "verdict", _verdict(FAIL, "NOT RUN")),
    Mutant("a pass that says it failed", "verdict", _verdict(PASS, "FAIL")),
    Mutant("a pass with a subcase unseen", "verdict", _unseen),
    Mutant("a pass with a subcase not concluded", "verdict", _concluded_less),
    Mutant("a pass with conclusions out of order", "verdict", _reversed),
    Mutant("a hold that does not say why", "verdict", _no_notes),
    Mutant("a hold by its conclusions that does not say why", "verdict", _nothing_concluded),
    Mutant("one arm for both", "arm_pair", _same_arm),
    Mutant("arms that differ by name alone", "arm_pair", _same_but_name),
    Mutant("a pass with an arm that never started", "arm_not_started", _no_start),
    Mutant("a pass with an arm without facts", "arm_not_started", _no_facts),
    Mutant("another engine version in one arm", "arm_platform", _platform_of_on(engine_version="0.32.0")),
    Mutant("another overlay in one arm", "arm_platform", _platform_of_on(overlay_version="0.0.9")),
    Mutant("another driver in one arm", "arm_platform", _driver_of_on),
    Mutant("two ranks with one device", "arm_ranks", _one_device),
    Mutant("a start that counts twice", "start_ids", _start_twice),
    Mutant("a start in both arms", "start_ids", _start_in_both),
    Mutant(
        "a CPU that poses as native", "evidence_class", _both_devices(device="cpu", capability="", driver="")
    ),
    Mutant("a simulated device that poses as native", "evidence_class", _both_devices(device="simulated")),
    Mutant("a device without a driver that poses as native", "evidence_class", _both_devices(driver="")),
    Mutant("a simulator that poses as native", "evidence_class", _both_platforms(engine="simulator")),
    Mutant(
        "an unsupported engine that poses as native",
        "evidence_class",
        _both_platforms(engine_version="0.31.0"),
    ),
    Mutant("a simulated wire that poses as native", "evidence_class", _both_platforms(transport="simulated")),
    Mutant(
        "native evidence that says rehearsal", "evidence_class", field("evidence_class", value="rehearsal")
    ),
    Mutant("nothing that poses as native", "evidence_class", _lacks_poses),
    Mutant("closed after the hard bound", "window", field("window", "closed", value="2026-11-01T11:30:01Z")),
    Mutant("closed before it opened", "window", field("window", "closed", value="2026-11-01T09:59:59Z")),
    Mutant(
        "a deadline after the hard bound",
        "window",
        field("window", "hard_bound", value="2026-11-01T11:14:59Z"),
    ),
    Mutant("a deadline at the opening", "window", field("window", "submission_deadline", value=OPENED)),
    Mutant("a pass without evidence", "evidence_none", field("evidence", value=[])),
    Mutant("an evidence file twice", "evidence_duplicate", _evidence_twice),
]
