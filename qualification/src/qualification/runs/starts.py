"""One start of one arm: worker and engine up, every check of the arm driven, files closed and entered in the ledger.

Owns the order in which that happens.  What goes wrong abandons the start: its files stay where they are, named so in
the ledger, and nothing of them counts.
"""

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import qualification
from qualification.arms.client import ArmClient, ArmError, CheckEngine, DeadlinePassedError
from qualification.arms.config import OBSERVE, ArmConfig
from qualification.checks.model import Arm, Check
from qualification.receipts.canonical import sha256
from qualification.receipts.platforms import DRAFTS_UNDER
from qualification.runs.declared import Side
from qualification.runs.disk import sync
from qualification.runs.folder import Run
from qualification.runs.platform import Platform
from qualification.runs.processes import Process, ProcessError
from qualification.runs.supervisor import Supervisor
from qualification.runs.worker import worker_of

MODULES = {"simulator": "qualification.arms.simulator", "vllm": "qualification.arms.vllm_engine"}
SOURCES = Path(qualification.__file__).parents[1]
INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "ENGRAM_LIBRARY",
)
"""Variables of the runner's that an arm gets; all else comes from the platform file and the arm."""


@dataclass(frozen=True)
class Stage:
    """What starts are made with."""

    run: Run
    platform: Platform
    supervisor: Supervisor


def start_folder(root: Path, side: Side, arm: str, start: str) -> Path:
    """Where a start's observations lie."""
    return root / "arms" / side / arm / start


def run_start(stage: Stage, side: Side, arm: Arm, checks: Sequence[Check]) -> str:
    """One start to its end; the runner's name for it, which is also its folder's.

    Raises ArmError and ProcessError once it is abandoned in the ledger; StoppedError, WindowError and LedgerError.
    """
    start = secrets.token_hex(8)
    ledger = stage.run.ledger
    folder = start_folder(stage.run.root, side, arm.name, start)
    folder.mkdir(parents=True)
    ledger.append("start", side=side, arm=arm.name, start=start, checks=[check.name for check in checks])
    try:
        _drive(stage, arm, checks, start, folder)
    except (ArmError, ProcessError) as error:
        stage.supervisor.over(folder)
        ledger.append("abandoned", start=start, why=str(error))
        raise
    stage.supervisor.over(folder)
    for path in sorted(folder.iterdir()):
        sync(path)
        data = path.read_bytes()
        ledger.append(
            "evidence",
            start=start,
            path=path.relative_to(stage.run.root).as_posix(),
            bytes=len(data),
            sha256=sha256(data),
        )
    sync(folder)
    ledger.append("ended", start=start)
    return start


def _drive(stage: Stage, arm: Arm, checks: Sequence[Check], start: str, folder: Path) -> None:
    run, platform = stage.run, stage.platform
    environment = _environment(stage, arm, folder)
    remote = arm.speculation in DRAFTS_UNDER
    if not remote:
        _run_engine(stage, arm, checks, folder, environment)
        return
    base = _base_environment(platform)
    with worker_of(platform, run.logs, start, base, stage.supervisor, run.window) as settings:
        policy = DRAFTS_UNDER[arm.speculation]
        own = {**settings, "VLLM_DSPARK_REMOTE_POLICY": policy, **arm.settings}
        _run_engine(stage, arm, checks, folder, {**environment, **own})


def _run_engine(
    stage: Stage, arm: Arm, checks: Sequence[Check], folder: Path, environment: Mapping[str, str]
) -> None:
    run, platform, start = stage.run, stage.platform, folder.name
    config = _config(stage, arm, start)
    command = [platform.python, "-m", MODULES[platform.engine], config.text()]
    log = run.logs / f"{start}.engine.log"
    with Process(f"arm {arm.name}", command, environment, log, stage.supervisor, pipes=True) as process:
        client = ArmClient(process, run.ledger, run.window, stage.supervisor, start)
        facts = client.wait_ready(platform.start_s)
        if (facts.arm, facts.ranks) != (arm.name, arm.ranks):
            raise ArmError(f"the engine is of arm {facts.arm!r} with {facts.ranks} ranks, not {arm.name!r}")
        stage.supervisor.start(facts.start_id, folder)
        run.ledger.append(
            "ready",
            start=start,
            start_id=facts.start_id,
            engine=facts.engine,
            version=facts.engine_version,
            device=facts.device,
        )
        for check in checks:
            _run_check(stage, client, check, start)
        client.close()


def _run_check(stage: Stage, client: ArmClient, check: Check, start: str) -> None:
    ledger, window = stage.run.ledger, stage.run.window
    assert check.drive is not None, "only checks that can run are driven"
    if not window.takes_cases:
        ledger.append("not_begun", start=start, check=check.name, why="the submission deadline has passed")
        return
    ledger.append("check", start=start, check=check.name)
    try:
        check.drive(CheckEngine(client, check.name, check.requests, client.facts))
    except DeadlinePassedError as error:
        ledger.append("not_begun", start=start, check=check.name, why=str(error))
        return
    window.checkpoint()
    ledger.append("checkpoint", start=start, check=check.name)


def _config(stage: Stage, arm: Arm, start: str) -> ArmConfig:
    platform = stage.platform
    arguments = {**platform.every_arm.arguments}
    if arm.ranks > 1:
        arguments |= platform.two_ranks.arguments
    if arm.name in platform.arms:
        arguments |= platform.arms[arm.name].arguments
    drafter = platform.drafter or ""
    if arm.speculation == "remote" and drafter:
        drafter = str(_bare(stage.run.logs / "drafter-config-only", Path(drafter)))
    return ArmConfig(
        arm=arm.name,
        speculation=arm.speculation,
        ranks=arm.ranks,
        target=platform.target or "",
        drafter=drafter,
        drafts=platform.drafts,
        prompt_text=platform.prompt_text or "",
        scratch=str(stage.run.logs / f"{start}.scratch"),
        arguments=arguments,
    )


def _bare(folder: Path, drafter: Path) -> Path:
    """The drafter's folder as a capacity host has it: its configuration, and no weights."""
    folder.mkdir(exist_ok=True)
    shutil.copyfile(drafter / "config.json", folder / "config.json")
    return folder


def _base_environment(platform: Platform) -> dict[str, str]:
    """What every process of an arm gets: little of the runner's own."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join([*platform.python_path, str(SOURCES)]),
        **platform.every_arm.environment,
    }


def _environment(stage: Stage, arm: Arm, folder: Path) -> dict[str, str]:
    platform = stage.platform
    more = platform.two_ranks.environment if arm.ranks > 1 else {}
    mine = platform.arms[arm.name].environment if arm.name in platform.arms else {}
    hooks = {
        OBSERVE: str(folder),
        f"{OBSERVE}_KEY": stage.run.key.hex(),
        f"{OBSERVE}_ARM": arm.name,
    }
    if arm.speculation in DRAFTS_UNDER:
        hooks[f"{OBSERVE}_FAULT_PLAN"] = str(stage.run.logs / f"{folder.name}.faults")
    return {**_base_environment(platform), **more, **mine, **hooks, **arm.settings}
