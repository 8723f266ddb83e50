"""`./run qualify`: rehearses qualification and looks at what must come of it.  Standard library only.

Each engine is rehearsed (`qualify rehearse`), its run verified, judged by the gate, and shown on one page.  A
rehearsal can promote nothing, so the gate must hold, and for that reason alone: exit status 0 then, 1 where anything
else is off, 2 where an option is, 128 + n after signal n.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = ROOT / "qualification" / "platforms"
PAIR = ROOT / "demo" / "pair"
ENGINES = {"sim": ("simulator",), "vllm": ("cpu",), "both": ("simulator", "cpu")}
"""What `--engine` asks for, by platform."""
NOT_NATIVE = "evidence is a rehearsal, not native"
COMMAND_S = 2400.0


class QualifyError(Exception):
    """Something is not as it must be; one sentence."""


@dataclass(frozen=True)
class Place:
    """Where everything of this rehearsal lies."""

    folder: Path

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    @property
    def subjects(self) -> Path:
        return self.folder / "subjects.json"

    def key(self, which: str) -> Path:
        """Of "key" and "pub"."""
        return self.folder / "keys" / f"qualify.{which}.pem"


def qualify(*words: str | Path, statuses: tuple[int, ...] = (0,), quiet: bool = False) -> str:
    """One command of `qualify`; what it printed.  Raises QualifyError on another exit status."""
    command = [str(Path(sys.executable).with_name("qualify")), *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            said, _ = child.communicate(timeout=COMMAND_S)
        except BaseException:
            child.terminate()
            child.wait(120)
            raise
    if not quiet:
        print(said, end="", flush=True)
    if child.returncode not in statuses:
        raise QualifyError(f"`qualify {words[0]}` ended with status {child.returncode}.")
    return said


def rehearse(place: Place, platforms: tuple[str, ...]) -> None:
    """A run on each platform, then verification of all of them."""
    for platform in platforms:
        engine = "simulator" if platform == "simulator" else "vllm"
        where = [] if engine == "simulator" else ["--platform", PLATFORMS / f"{platform}.toml"]
        print(f"\nrehearsing on {platform}", flush=True)
        qualify(
            "rehearse",
            *("--engine", engine, *where),
            *("--evidence", place.evidence, "--run", platform),
            *("--key", place.key("key"), "--subjects", place.subjects),
        )
    qualify("verify", "--key", place.key("pub"), place.evidence)


def gate(place: Place, platform: str) -> None:
    """Raises QualifyError unless the gate holds every required check for not being native, and for nothing else."""
    said = qualify(
        "gate",
        *("--policy", PLATFORMS / f"{platform}.policy.toml", "--subjects", place.subjects),
        *("--evidence", place.evidence / platform, "--key", place.key("pub"), "--json"),
        statuses=(1,),
        quiet=True,
    )
    judgement = json.loads(said)
    required = [check["check"] for check in judgement["checks"]]
    others = [held for held in judgement["held"] if held["sentence"] != NOT_NATIVE]
    for held in others:
        print(f"hold: {held['about']}: {held['sentence']}")
    if others or sorted(held["about"] for held in judgement["held"]) != sorted(required):
        raise QualifyError(f"the gate holds {platform} for something else than that nothing is native.")
    print(f"the gate says HOLD for {platform}: {NOT_NATIVE} ({len(required)} checks), and nothing else")


def run(platforms: tuple[str, ...], folder: Path) -> None:
    """All of it.  Raises QualifyError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place = Place(folder)
    qualify("keygen", folder / "keys", quiet=True)
    qualify(
        "subjects",
        *("--out", place.subjects, "--checkpoint", PAIR / "drafter"),
        *("--launch-config", PLATFORMS / "cpu.toml"),
        quiet=True,
    )
    rehearse(place, platforms)
    page = folder / "review.html"
    policy = PLATFORMS / f"{platforms[-1]}.policy.toml"
    qualify(
        "review",
        *(place.evidence, "--key", place.key("pub"), "--out", page),
        *("--policy", policy, "--subjects", place.subjects),
    )
    if not page.is_file():
        raise QualifyError(f"{page} was not written.")
    for platform in platforms:
        gate(place, platform)
    print(f"the page for a reviewer: {page}")


def interrupt(number: int, _: FrameType | None) -> None:
    """The first signal ends everything; later ones do nothing."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="./run qualify", description=__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="both", help="what to rehearse on")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:  # `./run` asks before anything is installed
        print(options.engine)
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        run(ENGINES[options.engine], ROOT / ".nox" / "rehearsal")
    except (QualifyError, subprocess.TimeoutExpired) as error:
        print(f"qualify: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
