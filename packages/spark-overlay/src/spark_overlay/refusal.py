"""The refusal left behind: the sentence with which an engine's process ended instead of drafting remotely.

Owns the file beside the readiness record that the launcher repeats: in the engine's own output the sentence stands far
above the end.  Standard library only, since it also tells of imports that fail; must never hide the failure itself.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ofl.files import read_plain

from spark_overlay.readiness import READY_FILE, RECORD_BYTES_MAX, START_ID, replace_file

SENTENCE_MAX = 2000
"""Characters of it that are kept."""
OURS = "spark_overlay"
SAID_FIRST = "spark-overlay: "
"""How our own exceptions begin, and the launcher's lines too."""


def refusal_path(ready_file: Path) -> Path:
    """Where the refusal of the engine with this readiness record lies."""
    return ready_file.with_name(f"{ready_file.name}.refused")


@contextlib.contextmanager
def left_behind(environ: Mapping[str, str], *, of_ours_alone: bool = False) -> Iterator[None]:
    """What is raised within is left for the launcher, and raised all the same.

    of_ours_alone: not where another package's exception ends it, whose words are its own.
    """
    try:
        yield
    except Exception as error:
        if _is_ours(error) or not of_ours_alone:
            leave_refusal(environ, error)
        raise


def leave_refusal(environ: Mapping[str, str], error: BaseException) -> None:
    """Write it where READY_FILE is set.  Never raises: the failure that it tells of goes on.

    Of several processes of one start the first is kept, as the others end because of it.
    """
    with contextlib.suppress(Exception):
        ready_file, start_id = environ.get(READY_FILE), environ.get(START_ID, "")
        if ready_file and not (start_id and read_refusal(Path(ready_file), start_id)):
            left = {"pid": os.getpid(), "start_id": start_id, "refusal": sentence(error)}
            replace_file(refusal_path(Path(ready_file)), json.dumps(left))


def read_refusal(ready_file: Path, start_id: str) -> str:
    """The sentence that a process of this start left; empty where there is none."""
    try:
        values = json.loads(read_plain(refusal_path(ready_file), RECORD_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(values, dict) or values.get("start_id") != start_id:
        return ""
    said = values.get("refusal")
    return said if isinstance(said, str) else ""


def forget_refusal(ready_file: Path) -> None:
    """Take away one that an earlier start left."""
    with contextlib.suppress(OSError):
        refusal_path(ready_file).unlink(missing_ok=True)


def sentence(error: BaseException) -> str:
    """What it says, in one line; with its kind where it is none of ours, or says nothing."""
    said = " ".join(str(error).split()).removeprefix(SAID_FIRST)
    if not (said and _is_ours(error)):
        said = f"{type(error).__name__}: {said}".removesuffix(": ")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in said)[:SENTENCE_MAX]


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == OURS
