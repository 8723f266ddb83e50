"""Staging over all hosts: copy and verify everywhere, then switch everywhere, or nowhere.

Owns the order and the sentences; a host that fails keeps the others from being switched, never from being asked.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from enum import IntEnum
from tempfile import TemporaryFile

from spark_overlay.delivery import far_end
from spark_overlay.delivery.content import DIGEST, SUMS, Content
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.far_end import FarStatus
from spark_overlay.delivery.transport import Answer, Destination, RemoteShell

HOSTS_AT_ONCE = 16
LOOK_S = 0.5
"""A signal that comes just before a thread begins to wait does not end the wait, so none is longer than this."""
SSH_FAILED = 255
"""ssh's own exit status, whatever the far end's shell could say."""
WRONG_FILES_MAX = 5
"""Files that a sentence names."""


class Status(IntEnum):
    """Exit statuses; of several hosts', the highest."""

    DONE = 0
    HELD_BACK = 1
    """Whole, but not switched, since another host failed."""
    USAGE = 2
    UNREACHABLE = 3
    NOT_COPIED = 4
    DIFFERS = 5
    NO_STAGE = 6
    NOT_SWITCHED = 7


@dataclass(frozen=True)
class Result:
    """One host's.  stage: the name that it is about, "" where there is none.  sentence: what was done or is wrong."""

    destination: Destination
    status: Status
    sentence: str
    stage: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class State:
    """What a far end has.  current: "" where there is none.  history: the newest last."""

    current: str
    history: Sequence[str]

    @property
    def before(self) -> str:
        """The stage that was current before this one, "" where there is none."""
        if self.current not in self.history:
            return ""
        place = list(self.history).index(self.current)
        return self.history[place - 1] if place else ""

    def followed_by(self, name: str, keep: int) -> list[str]:
        """The history once name is current: what was rolled back from is forgotten, the newest `keep` stay."""
        if self.current in self.history:
            past = list(self.history[: list(self.history).index(self.current) + 1])
        else:
            past = [self.current] if self.current else []
        return [*(one for one in past if one != name), name][-keep:]


Work = Callable[[Destination], Result]


def on_all(destinations: Sequence[Destination], shell: RemoteShell, work: Work) -> list[Result]:
    """Work on every host at once, the results in the order given; an interruption ends what runs."""

    def timed(destination: Destination) -> Result:
        started = time.monotonic()
        return replace(work(destination), seconds=time.monotonic() - started)

    with ThreadPoolExecutor(HOSTS_AT_ONCE) as pool:
        try:
            asked = [pool.submit(timed, one) for one in destinations]
            while wait(asked, timeout=LOOK_S).not_done:
                pass
            return [one.result() for one in asked]
        except BaseException:
            shell.end()
            raise


def stage(
    content: Content, destinations: Sequence[Destination], shell: RemoteShell, keep: int
) -> list[Result]:
    """Copy a stage to every host and make it current.  keep: stages that stay on each, at least 2 for a rollback."""
    with TemporaryFile() as archive:
        content.pack(archive)
        archive.flush()
        path = f"/proc/self/fd/{archive.fileno()}"
        put = on_all(destinations, shell, lambda one: _put(content, path, one, shell))
    return _then_switch(put, shell, lambda state, name: state.followed_by(name, keep))


def roll_back(destinations: Sequence[Destination], shell: RemoteShell) -> list[Result]:
    """Make current what was current before, on every host, where it is the same everywhere and still whole."""

    def find(destination: Destination) -> Result:
        state = _state(destination, shell)
        if isinstance(state, Result):
            return state
        if not state.before:
            return Result(
                destination, Status.NO_STAGE, "there is no stage before the current one", state.current
            )
        return _verified(destination, state.before, shell)

    found = on_all(destinations, shell, find)
    names = {one.stage for one in found if one.status is Status.DONE}
    if len(names) > 1:
        found = [_not_alike(one) for one in found]
    return _then_switch(found, shell, lambda state, name: [])


def check(destinations: Sequence[Destination], shell: RemoteShell, name: str = "") -> list[Result]:
    """Verify every host's current stage.  name: the one that it must be; "": the same everywhere is enough."""

    def look(destination: Destination) -> Result:
        state = _state(destination, shell)
        if isinstance(state, Result):
            return state
        if not state.current:
            return Result(destination, Status.NO_STAGE, "nothing is staged there")
        if name and state.current != name:
            return Result(destination, Status.DIFFERS, f"another stage is current, not {name}", state.current)
        return _verified(destination, state.current, shell)

    found = on_all(destinations, shell, look)
    if len({one.stage for one in found if one.status is Status.DONE}) > 1:
        return [_not_alike(one) for one in found]
    return found


def _not_alike(result: Result) -> Result:
    if result.status is not Status.DONE:
        return result
    return replace(result, status=Status.DIFFERS, sentence="the hosts have different stages")


def _then_switch(
    results: list[Result], shell: RemoteShell, history: Callable[[State, str], list[str]]
) -> list[Result]:
    """Make current what was found whole on all hosts; where one failed, on none."""
    if any(one.status is not Status.DONE for one in results):
        return [
            replace(
                one, status=Status.HELD_BACK, sentence=f"{one.sentence}; not switched, as another host failed"
            )
            if one.status is Status.DONE
            else one
            for one in results
        ]
    by_destination = {one.destination: one for one in results}

    def switch(destination: Destination) -> Result:
        result = by_destination[destination]
        state = _state(destination, shell)
        if isinstance(state, Result):
            return replace(result, status=Status.NOT_SWITCHED, sentence=f"not switched: {state.sentence}")
        if state.current == result.stage:
            return replace(result, sentence=f"{result.sentence}; it was current already")
        answer = shell.run(destination, far_end.SWITCH, result.stage, *history(state, result.stage))
        if answer.status == FarStatus.OK:
            return replace(result, sentence=f"{result.sentence}; current now")
        return replace(result, status=Status.NOT_SWITCHED, sentence=f"not switched: {_why(answer)}")

    return on_all([one.destination for one in results], shell, switch)


def _put(content: Content, archive: str, destination: Destination, shell: RemoteShell) -> Result:
    """Have the stage on a host, in its place and verified."""
    there = _verified(destination, content.name, shell)
    if there.status in (Status.DONE, Status.UNREACHABLE):
        return replace(there, sentence="there already, verified") if there.status is Status.DONE else there
    try:
        with open(archive, "rb") as stream:
            answer = shell.run(destination, far_end.PUT, content.name, stdin=stream)
    except OSError as error:
        raise DeliveryError(f"the stage cannot be packed: {error}") from None
    if answer.status == FarStatus.OK:
        return Result(destination, Status.DONE, "copied, verified", content.name)
    if answer.status == FarStatus.NOT_COPIED:
        return Result(
            destination, Status.NOT_COPIED, f"it could not be copied: {answer.last_words}", content.name
        )
    if answer.status == FarStatus.NO_FOLDER:
        sentence = f"the folder cannot be made or written: {answer.last_words}"
        return Result(destination, Status.NOT_COPIED, sentence, content.name)
    if answer.status == FarStatus.DIFFERS:
        sentence = f"what arrived is not what was sent, and was taken away: {_wrong(answer)}"
        return Result(destination, Status.DIFFERS, sentence, content.name)
    return Result(destination, Status.UNREACHABLE, _why(answer), content.name)


def _verified(destination: Destination, name: str, shell: RemoteShell) -> Result:
    answer = shell.run(destination, far_end.VERIFY, name)
    if answer.status == FarStatus.OK:
        return Result(destination, Status.DONE, "verified", name)
    if answer.status == FarStatus.NO_STAGE:
        return Result(destination, Status.NO_STAGE, "this stage is not there any more", name)
    if answer.status == FarStatus.DIFFERS:
        return Result(destination, Status.DIFFERS, f"it is not what was staged: {_wrong(answer)}", name)
    return Result(destination, Status.UNREACHABLE, _why(answer), name)


def _state(destination: Destination, shell: RemoteShell) -> State | Result:
    answer = shell.run(destination, far_end.STATE)
    if answer.status != FarStatus.OK:
        return Result(destination, Status.UNREACHABLE, _why(answer))
    current, history = "", []
    for line in answer.stdout.splitlines():
        what, _, name = line.partition(" ")
        name = name.removeprefix("stages/")
        if what == "current" and DIGEST.fullmatch(name):
            current = name
        elif what == "past" and DIGEST.fullmatch(name):
            history.append(name)
    return State(current, history)


def _wrong(answer: Answer) -> str:
    lines = [line for line in answer.stdout.splitlines() if line]
    more = len(lines) - WRONG_FILES_MAX
    return ", ".join([*lines[:WRONG_FILES_MAX], *([f"{more} more"] if more > 0 else [])]) or SUMS


def _why(answer: Answer) -> str:
    if answer.failed:
        return answer.failed
    if answer.status is not None and answer.status < 0:
        return f"the remote shell was ended by signal {-answer.status}"
    if answer.status == SSH_FAILED:
        return f"it cannot be reached: {answer.last_words}"
    return f"its shell ended with status {answer.status}: {answer.last_words}"
