"""The gate: promotes what a policy asks for, and holds for anything less, with a line that names it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest
from qualification.checks.model import Found
from qualification.checks.registry import all_checks
from qualification.gate import Judgement, Known, judge_gate, known_checks
from qualification.policy import Policy
from qualification.receipts import arm_record, verify_run
from qualification.receipts.making import declaration
from qualification.receipts.statement import Digest, Subject
from qualification.stated import contradictions
from qualification.subjects import SUBJECTS_FORMAT, SubjectsFile
from receipt_corpus import sound
from receipt_corpus.bench import Bench

KNOWN = known_checks(sound.CHECKS)
BITS = SubjectsFile(format=SUBJECTS_FORMAT, subjects=sound.SUBJECTS)
POLICY: dict[str, Any] = {
    "format": "urn:spark-offload:qualification:policy:v1",
    "name": "corpus",
    "promotion": "The corpus is promoted.",
    "evidence_class": "native",
    "minimum_counter": sound.FIRST_COUNTER,
    "required_checks": ["alpha_passes", "echo_ranks"],
    "required_subjects": ["wheel", "engine", "launch-config"],
    "thresholds": [
        {"check": "alpha_passes", "name": "drop_max", "at_most": 0.05},
        {"check": "alpha_passes", "name": "least", "at_least": 40},
    ],
    "platform": {
        "engine": "vllm",
        "engine_versions": ["0.33.0"],
        "devices": ["NVIDIA GB10"],
        "ranks": [1, 2],
        "transports": ["tcp"],
    },
}


@dataclass(frozen=True)
class Case:
    """What the gate is asked: a policy, bits, and runs as `Bench.make` makes them."""

    policy: dict[str, Any]
    bits: SubjectsFile
    runs: tuple[dict[str, Any], ...]
    known: dict[str, Known]

    def judge(self, folder: Path) -> Judgement:
        """The judgement, of runs that all verify."""
        roots = [Bench.make(folder / str(number), **dict(run)).root for number, run in enumerate(self.runs)]
        runs = [verify_run(root, sound.KEY) for root in roots]
        policy = Policy.model_validate_json(json.dumps(self.policy))
        return judge_gate(policy, self.bits, runs, known=self.known)


GOOD = Case(POLICY, BITS, ({},), KNOWN)


def asks(**fields: Any) -> Case:
    """The good case under a policy with other fields."""
    return replace(GOOD, policy=POLICY | fields)


def on_platform(**fields: Any) -> Case:
    return asks(platform=POLICY["platform"] | fields)


def bits(change: Callable[[list[Subject]], Any]) -> Case:
    """The good case with other bits to be promoted."""
    subjects = list(sound.SUBJECTS)
    change(subjects)
    return replace(GOOD, bits=SubjectsFile(format=SUBJECTS_FORMAT, subjects=tuple(subjects)))


ZEROS = Digest(sha256="0" * 64)
OTHER_WHEEL = Subject(name=sound.SUBJECTS[2].name, digest=ZEROS)
SECOND: dict[str, Any] = {"run_id": "run-2", "counter": 141}


def test_what_has_everything_is_promoted(tmp_path: Path) -> None:
    judgement = GOOD.judge(tmp_path)
    assert judgement.held == ()
    assert [(judged.check, judged.held) for judged in judgement.checks] == [
        ("alpha_passes", False),
        ("echo_ranks", False),
    ]


def test_a_second_run_of_the_same_bits_does_no_harm(tmp_path: Path) -> None:
    judgement = replace(GOOD, runs=({}, SECOND)).judge(tmp_path)
    assert judgement.held == ()
    assert [judged.receipt.predicate.run_id for judged in judgement.checks if judged.receipt] == [
        "run-2",
        "run-2",
    ]


@pytest.mark.parametrize(
    ("case", "about", "said"),
    [
        (replace(GOOD, runs=()), "alpha_passes", "no receipt"),
        (asks(required_checks=["alpha_passes", "zulu"]), "zulu", "no receipt"),
        (
            asks(required_checks=["bravo_fails"], thresholds=[]),
            "bravo_fails",
            "verdict is FAIL: short: short is failed.",
        ),
        (
            asks(required_checks=["charlie_holds"], thresholds=[]),
            "charlie_holds",
            "verdict is HOLD: rank 0 and rank 1",
        ),
        (
            asks(required_checks=["delta_lacks"], thresholds=[]),
            "delta_lacks",
            "verdict is NOT RUN: short: No barrier",
        ),
        (
            asks(minimum_counter=42),
            "alpha_passes",
            "counter 41 is below 42, the least that the policy accepts",
        ),
        (
            asks(required_subjects=["checkpoint"]),
            "subjects",
            "requires a subject of kind checkpoint, and the subjects file has none",
        ),
        (
            on_platform(engine_versions=["0.32.0"]),
            "alpha_passes",
            "engine is vllm 0.33.0+cu130; the policy asks for vllm 0.32.0",
        ),
        (on_platform(engine="other"), "echo_ranks", "the policy asks for other 0.33.0"),
        (
            on_platform(devices=["NVIDIA H200"]),
            "echo_ranks",
            "device is 'NVIDIA GB10'; the policy asks for NVIDIA H200",
        ),
        (on_platform(ranks=[1]), "echo_ranks", "it has 2 ranks; the policy asks for 1"),
        (
            on_platform(transports=["rdma", "shm"]),
            "alpha_passes",
            "arm on: transport is 'tcp'; the policy asks for rdma or shm",
        ),
        (
            asks(thresholds=[POLICY["thresholds"][0] | {"at_most": 0.04}]),
            "alpha_passes",
            "drop_max was 0.05; the policy asks for at most 0.04",
        ),
        (
            asks(thresholds=[POLICY["thresholds"][1] | {"at_least": 41}]),
            "alpha_passes",
            "least was 40; the policy asks for at least 41",
        ),
        (
            asks(thresholds=[{"check": "echo_ranks", "name": "least", "at_least": 1}]),
            "echo_ranks",
            "least is required by the policy and was not used",
        ),
        (
            replace(GOOD, known=KNOWN | {"echo_ranks": replace(KNOWN["echo_ranks"], digest="0" * 64)}),
            "echo_ranks",
            f"this qualify asks {'0' * 64}",
        ),
        (replace(GOOD, known={}), "echo_ranks", "this qualify asks no such check"),
        (
            replace(
                GOOD,
                known=KNOWN | {"alpha_passes": replace(KNOWN["alpha_passes"], off=KNOWN["echo_ranks"].off)},
            ),
            "alpha_passes",
            "arms.off is 'local' (local, 1 ranks, no settings); this qualify asks for 'local_2' (local, 2 ranks,",
        ),
        (
            replace(
                GOOD,
                known=KNOWN
                | known_checks(
                    [replace(sound.PASSES, on=replace(sound.REMOTE, settings={"RETRY_MS": "10"}))]
                ),
            ),
            "alpha_passes",
            "RETRY_MS=20); this qualify asks for 'remote' (remote, 1 ranks, RETRY_MS=10)",
        ),
        (
            replace(GOOD, runs=({"started": sound.simulated},)),
            "echo_ranks",
            "evidence is a rehearsal, not native",
        ),
        (
            bits(lambda made: made.__setitem__(2, OTHER_WHEEL)),
            "subjects",
            f"{OTHER_WHEEL.name}: to be promoted is {'0' * 64}; run run-1 judged {sound.SUBJECTS[2].digest.sha256}",
        ),
        (bits(lambda made: made.pop()), "subjects", "to be promoted is none; run run-1 judged"),
        (
            bits(lambda made: made.append(Subject(name="checkpoint:new", digest=ZEROS))),
            "subjects",
            f"checkpoint:new: to be promoted is {'0' * 64}; run run-1 judged none",
        ),
        (
            replace(
                asks(required_checks=["bravo_fails"], thresholds=[]),
                runs=({}, SECOND | {"found": Found.PASSED}),
            ),
            "evidence",
            "[conflict] bravo_fails: run run-2 says PASS, run run-1 says FAIL",
        ),
        (
            replace(
                asks(required_checks=["bravo_fails"], thresholds=[]),
                runs=({"found": Found.PASSED}, SECOND | {"found": Found.NOT_SEEN}),
            ),
            "bravo_fails",
            "run run-2 has a newer receipt that says NOT RUN",
        ),
        (
            replace(GOOD, runs=({}, {"run_id": "run-2"})),
            "evidence",
            "[counter_overlap] counter 41 stands in the runs",
        ),
    ],
)
def test_anything_less_is_held_with_a_line_that_names_it(
    tmp_path: Path, case: Case, about: str, said: str
) -> None:
    held = case.judge(tmp_path).held
    assert any(one.about == about and said in one.sentence for one in held), "\n".join(map(str, held))


def test_a_difference_of_subjects_is_told_once_and_not_for_every_check(tmp_path: Path) -> None:
    held = bits(lambda made: made.__setitem__(2, OTHER_WHEEL)).judge(tmp_path).held
    assert sorted(one.about for one in held) == ["alpha_passes", "echo_ranks", "subjects"]


def test_receipts_of_two_platforms_do_not_count_together(tmp_path: Path) -> None:
    """The second run, elsewhere, is the only one that ranks passed in."""

    def elsewhere(arm: Any, starts: tuple[str, ...]) -> Any:
        made = [sound.facts(arm, start, rank) for start in starts for rank in range(arm.ranks)]
        return arm_record(arm, [replace(one, driver="570.0") for one in made] if arm.ranks == 2 else made)

    held = replace(GOOD, runs=({"started": elsewhere},)).judge(tmp_path).held
    assert [one.about for one in held] == ["platform"]
    assert "driver 570.0" in held[0].sentence
    assert "driver 580.95" in held[0].sentence


class Stated(TypedDict, total=False):
    """What of an engine's facts these tests state."""

    engine_version: str
    overlay_version: str
    policy: str
    transport: str


def stating(speculations: tuple[str, ...], **fields: Unpack[Stated]) -> dict[str, Any]:
    """A run whose engines, in arms that draft so, stated other fields."""

    def started(arm: Any, starts: tuple[str, ...]) -> Any:
        made = [sound.facts(arm, start, rank) for start in starts for rank in range(arm.ranks)]
        return arm_record(
            arm, [replace(one, **fields) for one in made] if arm.speculation in speculations else made
        )

    return {"started": started}


EVERY_ARM, REMOTE_ARM, LOCAL_ARM = ("local", "remote"), ("remote",), ("local",)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            stating(EVERY_ARM, engine_version="0.32.0+cu130"),
            {
                "arm off: engine is vllm 0.32.0+cu130; the subject is engine:vllm 0.33.0",
                "arm on: engine is vllm 0.32.0+cu130; the subject is engine:vllm 0.33.0",
            },
        ),
        (
            stating(EVERY_ARM, overlay_version="0.0.9"),
            {
                "arm off: overlay is 0.0.9; the subject is wheel:spark_overlay-0.1.0-py3-none-any.whl",
                "arm on: overlay is 0.0.9; the subject is wheel:spark_overlay-0.1.0-py3-none-any.whl",
            },
        ),
        (
            stating(EVERY_ARM, overlay_version=""),
            {
                "arm off: overlay is none; the subject is wheel:spark_overlay-0.1.0-py3-none-any.whl",
                "arm on: overlay is none; the subject is wheel:spark_overlay-0.1.0-py3-none-any.whl",
            },
        ),
        (
            stating(REMOTE_ARM, policy="shadow"),
            {"arm on: overlay's policy is shadow; the arm remote is of capacity"},
        ),
        (
            stating(REMOTE_ARM, policy="", transport=""),
            {
                "arm on: overlay's policy is none; the arm remote is of capacity",
                "arm on: transport is none; the arm remote drafts remotely",
            },
        ),
        (
            stating(LOCAL_ARM, policy="capacity", transport="tcp"),
            {
                "arm off: overlay's policy is capacity; the arm local is of none",
                "arm off: transport is 'tcp'; nothing in the arm local drafts remotely",
            },
        ),
    ],
)
def test_an_engine_that_states_something_else_than_the_receipt_holds(
    tmp_path: Path, run: dict[str, Any], said: set[str]
) -> None:
    case = on_platform(engine_versions=["0.32.0", "0.33.0"])
    case = replace(case, policy=case.policy | {"required_checks": ["alpha_passes"]}, runs=(run,))
    assert {one.sentence for one in case.judge(tmp_path).held} == said


@pytest.mark.parametrize(
    ("stated", "subject", "held"),
    [
        ("0.33.0", "vllm 0.33.0", False),
        ("0.33.0", "vllm 0.33.0+cu130", False),
        ("0.33.0+cu130", "vllm 0.33.0+cu130", False),
        ("0.33.0+cu130", "vllm 0.33.0+cpu", True),
        ("0.33.0", "vllm 0.33.01", True),
        ("0.33.0", "vllm", True),
        ("0.33.0", "other 0.33.0", True),
    ],
)
def test_local_parts_of_versions_are_compared_where_both_have_one(
    bench: Bench, stated: str, subject: str, held: bool
) -> None:
    receipt = verify_run(bench.root, sound.KEY).receipts[0]
    predicate = receipt.predicate.model_copy(deep=True)
    sides = {
        side: record.model_copy(
            update={"platform": record.platform.model_copy(update={"engine_version": stated})}
        )
        for side, record in (("off", predicate.arms.off), ("on", predicate.arms.on))
        if record.platform is not None
    }
    statement = receipt.statement.model_copy(
        update={
            "subject": (Subject(name=f"engine:{subject}", digest=ZEROS),),
            "predicate": predicate.model_copy(update={"arms": predicate.arms.model_copy(update=sides)}),
        }
    )
    assert bool(list(contradictions(replace(receipt, statement=statement)))) == held


def test_a_run_that_does_not_verify_is_a_reason_to_hold(tmp_path: Path) -> None:
    from qualification.receipts import Violation

    policy = Policy.model_validate_json(json.dumps(POLICY))
    run = verify_run(Bench.make(tmp_path).root, sound.KEY)
    held = judge_gate(policy, BITS, [run], [Violation("incomplete", "no", "run-0")], known=KNOWN).held
    assert [str(one) for one in held] == ["hold: evidence: run-0: [incomplete] no"]


def test_this_qualify_knows_the_declaration_of_every_check() -> None:
    known = known_checks()
    assert {name: one.digest for name, one in known.items()} == {
        check.name: declaration(check).digest for check in all_checks()
    }
    assert len({one.digest for one in known.values()}) == len(all_checks())
    assert {name: (one.off.name, one.on.name) for name, one in known.items()} == {
        check.name: (check.off.name, check.on.name) for check in all_checks()
    }


def test_thresholds_that_no_policy_bounds_are_the_checks_own(tmp_path: Path) -> None:
    policy = Policy.model_validate_json(json.dumps(POLICY | {"thresholds": []}))
    run = verify_run(Bench.make(tmp_path).root, sound.KEY)
    assert judge_gate(policy, BITS, [run], known=KNOWN).held == ()
    first, *others = run.receipts
    looser = tuple(one.model_copy(update={"value": one.value + 1}) for one in first.predicate.thresholds)
    predicate = first.predicate.model_copy(update={"thresholds": looser})
    receipt = replace(first, statement=first.statement.model_copy(update={"predicate": predicate}))
    held = judge_gate(policy, BITS, [replace(run, receipts=(receipt, *others))], known=KNOWN).held
    assert [str(one) for one in held] == [
        "hold: alpha_passes: threshold drop_max was 1.05, not the check's 0.05, and the policy bounds it not",
        "hold: alpha_passes: threshold least was 41, not the check's 40, and the policy bounds it not",
    ]
