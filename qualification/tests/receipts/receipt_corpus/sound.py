"""The sound run: five receipts, of which each verdict is one, with evidence files.  The same bytes every time.

The key is a test key: made from a fixed seed that stands here, so it proves nothing to anybody.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ofl.contract.observation_v1 import Facts, Observation, write_line
from qualification.checks.model import Arm, Check, Conclusion, Found, Subcase
from qualification.receipts import Place, arm_record, build, not_seen, payload
from qualification.receipts.fields import NO_DIGEST, File
from qualification.receipts.keys import CryptoSigner
from qualification.receipts.platforms import arm_declaration
from qualification.receipts.run_record import BLINDING, RUN_FORMAT, RunRecord
from qualification.receipts.statement import ArmRecord, Digest, Statement, Subject, Window

from qualification import __version__

SEED = hashlib.sha256(b"the test key of the receipts' corpus").digest()
PRIVATE_KEY = Ed25519PrivateKey.from_private_bytes(SEED)
SIGNER = CryptoSigner(PRIVATE_KEY)
OTHER_SIGNER = CryptoSigner(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"another").digest()))
KEY = SIGNER.public_key

LOCAL, REMOTE = Arm("local", "local"), Arm("remote", "remote", settings={"RETRY_MS": "20"})
LOCAL_2, REMOTE_2 = Arm("local_2", "local", 2), Arm("remote_2", "remote", 2)
ARMS = (LOCAL, REMOTE, LOCAL_2, REMOTE_2)
WHO = "who drafts"
SUBCASES = (Subcase("short", "Is a short prompt exact?"), Subcase("long", "Is a long one?", "row_reduction"))
PASSES = Check(
    "alpha_passes", "Alpha?", WHO, LOCAL, REMOTE, SUBCASES, thresholds={"drop_max": 0.05, "least": 40}
)
FAILS = Check("bravo_fails", "Bravo?", WHO, LOCAL, REMOTE, SUBCASES)
HOLDS = Check("charlie_holds", "Charlie?", WHO, LOCAL_2, REMOTE_2, SUBCASES)
LACKS = Check("delta_lacks", "Delta?", WHO, LOCAL, REMOTE, SUBCASES, missing="No barrier is built.")
RANKS = Check("echo_ranks", "Echo?", WHO, LOCAL_2, REMOTE_2, SUBCASES[:1])
CHECKS = (PASSES, FAILS, HOLDS, LACKS, RANKS)
KNOWN_NAMES = tuple(check.name for check in CHECKS)
SUBJECTS = tuple(
    Subject(name=name, digest=Digest(sha256=hashlib.sha256(name.encode()).hexdigest()))
    for name in (
        "engine:vllm 0.33.0",
        "launch-config:serve.toml",
        "wheel:spark_overlay-0.1.0-py3-none-any.whl",
    )
)
WINDOW = Window(
    opened="2026-11-01T10:00:00Z",
    submission_deadline="2026-11-01T11:15:00Z",
    hard_bound="2026-11-01T11:30:00Z",
    closed="2026-11-01T10:40:00.5Z",
)
FIRST_COUNTER = 41


def facts(arm: Arm, start: str, rank: int = 0, *, device: str = "NVIDIA GB10", engine: str = "vllm") -> Facts:
    """What one rank of a start states: native, unless told otherwise."""
    native = device.startswith("NVIDIA")
    return Facts(
        schema="observation-v1",
        start_id=start,
        arm=arm.name,
        rank=rank,
        ranks=arm.ranks,
        engine=engine,
        engine_version="0.33.0+cu130" if engine == "vllm" else "1",
        overlay_version="0.1.0",
        device=device,
        device_capability="12.1" if native else "",
        driver="580.95" if native else "",
        speculator="Remote" if arm.speculation == "remote" else "DSpark",
        speculator_module="some.module",
        policy="capacity" if arm.speculation == "remote" else "",
        transport="tcp" if arm.speculation == "remote" else "",
        draft_parameters=0,
        draft_layers=0,
        budget_tokens=2048,
        block_length=5,
        window=0,
        capabilities=("row_reduction", "asynchronous_hand_off"),
    )


Started = Callable[[Arm, tuple[str, ...]], ArmRecord]


def native(arm: Arm, starts: tuple[str, ...]) -> ArmRecord:
    """An arm on the platform of the policies."""
    return arm_record(arm, [facts(arm, start, rank) for start in starts for rank in range(arm.ranks)])


def simulated(arm: Arm, starts: tuple[str, ...]) -> ArmRecord:
    """The same in the simulator."""
    made = [
        facts(arm, start, rank, device="simulated", engine="simulator")
        for start in starts
        for rank in range(arm.ranks)
    ]
    return arm_record(arm, made)


def run_record(run_id: str = "run-1", counter: int = FIRST_COUNTER) -> RunRecord:
    """Of the sound run."""
    return RunRecord(
        format=RUN_FORMAT,
        run_id=run_id,
        tool_version=__version__,
        platform="spark",
        declared_checks=KNOWN_NAMES,
        arms=tuple(map(arm_declaration, ARMS)),
        counter_first=str(counter),
        blinding=BLINDING,
        started="2026-11-01T09:55:00Z",
        window_submission_seconds=4500,
        window_bound_seconds=5400,
    )


def conclusions(check: Check, found: Found = Found.PASSED) -> list[Conclusion]:
    """All subcases but the first passed; that one as given."""
    made = [Conclusion(one.name, Found.PASSED, f"All of {one.name} agreed.", 12) for one in check.subcases]
    made[0] = Conclusion(made[0].subcase, found, f"{made[0].subcase} is {found}.", 12)
    return made


def statements(run: RunRecord, started: Started = native, found: Found = Found.FAILED) -> list[Statement]:
    """One per check, chained.  found: of the first subcase of `FAILS`."""
    concluded = {
        PASSES.name: conclusions(PASSES),
        FAILS.name: conclusions(FAILS, found),
        HOLDS.name: conclusions(HOLDS),
        LACKS.name: not_seen(LACKS, LACKS.missing),
        RANKS.name: conclusions(RANKS),
    }
    made: list[Statement] = []
    previous = NO_DIGEST
    for index, check in enumerate(CHECKS):
        off, on = _arms(check, started)
        statement = build(
            check,
            run,
            Place(int(run.counter_first) + index, previous),
            subjects=SUBJECTS,
            off=off,
            on=on,
            conclusions=concluded[check.name],
            evidence=described(observations("observations", off, on)),
            window=WINDOW,
            thresholds=check.thresholds,
            hold="rank 0 and rank 1 contradict each other" if check is HOLDS else "",
        )
        previous = hashlib.sha256(payload(statement)).hexdigest()
        made.append(statement)
    return made


def ledger() -> bytes:
    """Three chained lines."""
    lines, before = b"", NO_DIGEST
    for number, kind in enumerate(("run", "intent", "completed")):
        line = json.dumps({"n": number, "before": before, "kind": kind}).encode() + b"\n"
        before = hashlib.sha256(line).hexdigest()
        lines += line
    return lines


def _arms(check: Check, started: Started) -> tuple[ArmRecord, ArmRecord]:
    if check.missing:
        return started(check.off, ()), started(check.on, ())
    ranks = check.off.ranks
    return started(check.off, (f"off-{ranks}-a", f"off-{ranks}-b")), started(check.on, (f"on-{ranks}-a",))


def observations(folder: str, *records: ArmRecord) -> dict[str, bytes]:
    """Files, by path, in which the arms' engines state what the records say of them."""
    made = {}
    for record in records:
        ranks = len(record.platform.devices) if record.platform else 0
        for start in record.starts:
            for rank in range(ranks):
                line = write_line(Observation(0, 1, _stated(record, start, rank)))
                made[f"{folder}/{start}-{rank}.jsonl"] = line
    return made


def _stated(record: ArmRecord, start: str, rank: int) -> Facts:
    assert record.platform is not None
    platform, device = record.platform, record.platform.devices[rank]
    arm = Arm(record.arm.name, record.arm.speculation, record.arm.ranks)
    return replace(
        facts(arm, start, rank),
        engine=platform.engine,
        engine_version=platform.engine_version,
        overlay_version=platform.overlay_version,
        transport=platform.transport,
        policy=platform.policy,
        device=device.device,
        device_capability=device.capability,
        driver=device.driver,
        capabilities=platform.capabilities,
    )


def described(files: dict[str, bytes]) -> list[File]:
    """As receipts name them."""
    return [
        File(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in files.items()
    ]


def write_files(root: Path, started: Started = native) -> None:
    """Evidence and ledger."""
    files = {"ledger.jsonl": ledger()}
    for check in CHECKS:
        files |= observations("observations", *_arms(check, started))
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
