"""Does the asynchronous hand-off stay right over hours, with publishers that are late and processes that die?"""

from qualification.checks._arms import QUICK_RETRY, REMOTE
from qualification.checks.model import Arm, Check, Subcase

CHECK = Check(
    name="hand_off_soak",
    asks="Does the asynchronous hand-off stay right over hours?",
    arm_variable="whether rounds are handed off to another process (ON) or run in the engine's thread (OFF)",
    off=REMOTE,
    on=Arm("hand_off", "remote", settings={**QUICK_RETRY, "VLLM_DSPARK_REMOTE_ASYNC": "1"}),
    subcases=(
        Subcase(
            "rounds_without_a_wrong_draft", "Is no draft of another round ever used?", "asynchronous_hand_off"
        ),
        Subcase(
            "publisher_dies", "Does the engine go on when the other process dies?", "asynchronous_hand_off"
        ),
        Subcase("nothing_grows", "Do memory and queues stay within their bounds?", "asynchronous_hand_off"),
    ),
    missing=("It lacks the hand-off itself, which is not built yet, and a window of hours."),
)
