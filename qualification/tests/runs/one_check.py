"""A check of one request, and what a script says that passes for an arm's engine."""

from collections.abc import Callable, Sequence

from qualification.checks.model import Arm, Check, Engine, Prompt, Subcase
from qualification.runs.folder import Run
from qualification.runs.platform import Platform

FACTS = (
    '{"schema":"observation-v1","start_id":"5a","arm":"target_only","rank":0,"ranks":1,"engine":"simulator",'
    '"engine_version":"1","overlay_version":"1","device":"simulated","device_capability":"","driver":"",'
    '"speculator":"","speculator_module":"","policy":"","transport":"","draft_parameters":0,"draft_layers":0,'
    '"budget_tokens":64,"block_length":0,"window":0,"capabilities":[]}'
)
READY = f'{{"event":"ready","facts":{FACTS}}}'


def drive(engine: Engine) -> None:
    """One request."""
    engine.submit("one.a", Prompt(8, seed=1), 4)
    engine.run()


CHECK = Check(
    name="one",
    asks="Does one request end?",
    arm_variable="nothing that a test cares for",
    off=Arm("target_only", "none"),
    on=Arm("local", "local"),
    subcases=(Subcase("ended", "Does it?"),),
    drive=drive,
    decide=lambda off, on, thresholds: [],
    requests="one.",
)
MakeRun = Callable[..., Run]
MakePlatform = Callable[[Sequence[str]], Platform]
