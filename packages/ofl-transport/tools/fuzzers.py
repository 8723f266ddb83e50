"""Fuzz what a native package reads of a peer's bytes, and prove that what is planted is found: what every package's
fuzz.py shares.

libfuzzer: clang's; driver: the project's own (the transport's cpp/tests/fuzz/driver.cpp), on GCC's coverage.  auto
takes libFuzzer where a clang with it is there.  Both run with the address and undefined-behaviour sanitizers.  A
planted defect has PLANT_SECONDS to be found.  An input that breaks something stays in the package's
build/fuzz-ENGINE/found, and how to run it again is printed, with the seed; once mended it belongs into
cpp/tests/fuzz/inputs, with which every run of its target begins.  Needs cmake and ninja.  Which targets there are is
their package's to know.
"""

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import junit
import processes
from native_packages import NativePackage

PLANTED = "planted_fuzz"
SEEDS = "fuzz_seeds"
"""Writes the first inputs."""
PLANT_SECONDS = 20
CLEAN_SECONDS = 5
INPUT_BYTES_MAX = 1 << 17
INPUT_SECONDS_MAX = 10
BUILD_SECONDS = 1800
CLANGS = ("clang++", *(f"clang++-{version}" for version in range(22, 13, -1)))


@dataclass(frozen=True)
class Targets:
    """The fuzz targets of a package, programs NAME_TARGET of its build, and PLANTED, which has the planted defects.

    holds: target -> what holds.  turns: targets that take turns and share the time; the turns run side by side.
    seconds_part: of the time that is asked for, what each of the turns has.
    """

    package: NativePackage
    holds: Mapping[str, str]
    turns: Sequence[Sequence[str]]
    plants: Sequence[str]
    seconds_part: float = 1.0

    @property
    def inputs(self) -> Path:
        """Of files TARGET-NAME: what broke that target once."""
        return self.package.root / "cpp" / "tests" / "fuzz" / "inputs"

    def program(self, name: str) -> str:
        return f"{self.package.name}_{name}"


@dataclass(frozen=True)
class Ended:
    """How a fuzzer ended: its status, the end of what it said, runs that it counted, and the input that it saved."""

    status: int
    said: str
    runs: int
    saved: Path | None


@dataclass(frozen=True)
class Fuzzer:
    """Built targets, and how they are started."""

    targets: Targets
    folder: Path
    seed: int

    @property
    def found(self) -> Path:
        return self.folder / "found"

    def environment(self, plant: str) -> dict[str, str]:
        options = {"ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        return os.environ | options | {f"{self.targets.package.prefix}_FUZZ_PLANT": plant}

    def fuzz(self, target: str, seconds: int, plant: str = "none") -> Ended:
        """Start from the seeds, in a corpus of its own, for some seconds or until something breaks."""
        prefix = f"{target}-{plant}-" if plant != "none" else f"{target}-"
        for old in self.found.glob(f"{prefix}*"):
            old.unlink()
        with tempfile.TemporaryDirectory() as corpus:
            subprocess.run([self._program(SEEDS), corpus], check=True, timeout=60)
            for kept in self.targets.inputs.glob(f"{target}-*"):
                shutil.copy(kept, corpus)
            words = [
                self._program(target),
                f"-max_total_time={seconds}",
                f"-seed={self.seed}",
                f"-max_len={INPUT_BYTES_MAX}",
                f"-timeout={INPUT_SECONDS_MAX}",
                f"-artifact_prefix={self.found}/{prefix}",
                corpus,
            ]
            return self._run(words, plant, prefix, seconds + 60)

    def replay(self, target: str, path: Path, plant: str = "none") -> Ended:
        """Run one saved input."""
        words = [self._program(target), f"-artifact_prefix={self.found}/replay-", str(path)]
        return self._run(words, plant, "replay-", 60)

    def _program(self, name: str) -> str:
        return str(self.folder / self.targets.program(name))

    def _run(self, words: list[str], plant: str, prefix: str, seconds: float) -> Ended:
        try:
            status, said = processes.finished(words, seconds, self.environment(plant))
        except subprocess.TimeoutExpired:
            status, said = -1, f"it did not end in {seconds:.0f} s"
        counts = [int(count) for count in re.findall(r"(?:^|Done )(\d+) runs in", said, re.MULTILINE)]
        saved = sorted(self.found.glob(f"{prefix}*"))
        return Ended(status, said, counts[-1] if counts else 0, saved[-1] if saved else None)


def clang() -> str:
    """A clang that links libFuzzer and the sanitizers, or ""."""
    program = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
    for name in CLANGS:
        if not shutil.which(name):
            continue
        words = [name, "-fsanitize=fuzzer,address,undefined", "-x", "c++", "-", "-o", os.devnull]
        done = subprocess.run(words, input=program, text=True, capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return name
    return ""


def build(targets: Targets, engine: str, compiler: str) -> Path:
    """Configure and build the targets; returns the folder.  Raises subprocess.SubprocessError, which says why."""
    package = targets.package
    folder = package.root / "build" / f"fuzz-{engine}"
    configure = ["cmake", "-G", "Ninja", "-S", str(package.root), "-B", str(folder)]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-D{package.prefix}_FUZZ=ON"]
    configure.append(f"-D{package.prefix}_FUZZ_LIBFUZZER={'ON' if engine == 'libfuzzer' else 'OFF'}")
    if compiler:
        configure.append(f"-DCMAKE_CXX_COMPILER={compiler}")
    programs = [targets.program(name) for name in (*targets.holds, PLANTED, SEEDS)]
    for words in (configure, ["cmake", "--build", str(folder), "--parallel", "2", "--target", *programs]):
        status, said = processes.finished(words, BUILD_SECONDS)
        if status != 0:
            raise subprocess.SubprocessError(f"{words[0]} ended with status {status}\n{said[-4000:]}")
    (folder / "found").mkdir(exist_ok=True)
    return folder


def holds(fuzzer: Fuzzer, target: str, seconds: int) -> str:
    """A target is clean for the given time; else what broke, the seed, and how to see it again."""
    ended = fuzzer.fuzz(target, seconds)
    if ended.status == 0 and ended.saved is None:
        print(f"     {target}: {ended.runs} runs in {seconds} s", flush=True)
        return "" if ended.runs > 0 else f"the fuzzer counted no run\n{ended.said[-2000:]}"
    again = (
        f"{fuzzer.folder}/{fuzzer.targets.program(target)} {ended.saved}"
        if ended.saved
        else "no input was saved"
    )
    return f"seed {fuzzer.seed}: broken; again: {again}\n{ended.said[-6000:]}"


def is_clean(fuzzer: Fuzzer) -> str:
    """The judge cries at nothing: a reader without a defect, written apart, passes."""
    ended = fuzzer.fuzz(PLANTED, CLEAN_SECONDS)
    return "" if ended.status == 0 and ended.runs > 0 else f"seed {fuzzer.seed}\n{ended.said[-6000:]}"


def is_found(fuzzer: Fuzzer, plant: str) -> str:
    """A planted defect is found in time, and what was saved shows it again, and shows nothing without the plant."""
    ended = fuzzer.fuzz(PLANTED, PLANT_SECONDS, plant)
    if ended.status == 0 or ended.saved is None:
        return (
            f"seed {fuzzer.seed}: not found in {PLANT_SECONDS} s and {ended.runs} runs\n{ended.said[-2000:]}"
        )
    if fuzzer.replay(PLANTED, ended.saved, plant).status == 0:
        return f"{ended.saved} does not show it again"
    clean = fuzzer.replay(PLANTED, ended.saved)
    return "" if clean.status == 0 else f"{ended.saved} breaks a sound reader\n{clean.said[-2000:]}"


def check(fuzzer: Fuzzer, seconds: int) -> list[junit.Case]:
    """Plants first: a fuzzer that finds nothing planted need not look further to be distrusted."""
    cases = [look(PLANTED, "a reader without a defect is found clean", partial(is_clean, fuzzer))]
    cases += [
        look(PLANTED, f"the planted defect {plant} is found", partial(is_found, fuzzer, plant))
        for plant in fuzzer.targets.plants
    ]
    seconds = int(seconds * fuzzer.targets.seconds_part)

    def in_turn(names: Sequence[str]) -> list[junit.Case]:
        share = max(1, seconds // len(names))
        return [look(name, fuzzer.targets.holds[name], partial(holds, fuzzer, name, share)) for name in names]

    with ThreadPoolExecutor(max_workers=2) as side_by_side:
        for found in side_by_side.map(in_turn, fuzzer.targets.turns):
            cases += found
    return cases


def look(group: str, name: str, question: Callable[[], str]) -> junit.Case:
    """Ask one question, whose answer is what is wrong or "", and say what came of it."""
    begun = time.monotonic()
    failure = question()
    case = junit.Case(group, name, time.monotonic() - begun, failure)
    said = f"{'FAIL' if failure else 'ok  '} {group}: {name} ({case.seconds:.1f} s)"
    print(f"{said}\n{failure}" if failure else said, flush=True)
    return case


def main(about: str, targets: Targets) -> int:
    """The command line: build, fuzz, report.  The exit status, 0 only if all was clean and every plant was found.

    about: what its help says, to the end of the first line.
    """
    package = targets.package
    options = argparse.ArgumentParser(description=about.partition("\n")[0], allow_abbrev=False)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31) + 1)
    options.add_argument("--engine", choices=("auto", "libfuzzer", "driver"), default="auto")
    options.add_argument("--report", type=Path, default=package.root / "build" / "fuzz.xml")
    chosen = options.parse_args()
    compiler = "" if chosen.engine == "driver" else clang()
    if chosen.engine == "libfuzzer" and not compiler:
        print(
            "fuzz: no clang here links libFuzzer; as root: apt-get install clang libclang-rt-14-dev",
            file=sys.stderr,
        )
        return 1
    engine = "libfuzzer" if compiler else "driver"
    how = f"{engine}{f' of {compiler}' if compiler else ''}"
    print(f"fuzz: {package.name} with {how}, seed {chosen.seed}", flush=True)
    try:
        fuzzer = Fuzzer(targets, build(targets, engine, compiler), chosen.seed)
    except subprocess.SubprocessError as error:
        junit.write(chosen.report, "fuzz", [junit.Case("fuzz", "the targets are built", failure=str(error))])
        print(f"fuzz: {error}", file=sys.stderr)
        return 1
    cases = check(fuzzer, chosen.seconds)
    junit.write(chosen.report, "fuzz", cases)
    print(f"fuzz: {junit.summary(cases)}")
    return 1 if any(case.failure for case in cases) else 0
