"""Build libofl.so and libengram.so for this machine and for aarch64, test all, and compare what came out.

    python tools/cross.py [--allow-skip] [--report FILE] [--wheels FOLDER]

Debian's g++-aarch64-linux-gnu compiles; qemu-user runs the C++ tests and opens the libraries and those of the wheels.
They are installed if this is root on Debian; aarch64's libcrypto, which the tests of proofs open, and its liburing,
which libengram links in, are unpacked beside the builds.  Without one of them the exit status is 1 and the reason is
said; with --allow-skip it is 0, and the report holds one skipped case.  Needs cmake, ninja and uv.  Builds go to
build/cross-MACHINE of each package.

What this cannot show: qemu on x86-64 keeps the stronger memory order of its host, so a missing barrier stays hidden;
and it knows no io_uring, so that libengram reads with threads there.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import debian
import junit
import native_library
import processes
from native_packages import ENGRAM, OFL, PACKAGES, NativePackage

BUILD = OFL.root / "build"
TOOLCHAIN = OFL.root / "cmake" / "aarch64-linux-gnu.cmake"
CRYPTO_PACKAGES = ("libssl3", "libssl3t64")
"""With libcrypto.so.3: up to Debian 12, and from 13 on."""
CRYPTO = BUILD / "cross-libcrypto"
CRYPTO_FOLDER = CRYPTO / "tree" / "usr" / "lib" / "aarch64-linux-gnu"
URING = BUILD / "cross-liburing"
EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={CRYPTO_FOLDER}")
VERBS = Path("/usr/include/infiniband")
XXHASH = Path("/usr/include/xxhash.h")
"""The same for every machine; libengram's build copies this one file."""
NEEDS = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
    f"{VERBS}/verbs.h": "libibverbs-dev",
    str(XXHASH): "libxxhash-dev",
}
BUILD_SECONDS = 1800
TEST_SECONDS = 600


@dataclass(frozen=True)
class Target:
    """A package and a machine to build it for: what cmake is told, and what runs its programs."""

    package: NativePackage
    machine: str
    options: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its cases in the report."""
        return f"{self.package.name}.{self.machine}"

    @property
    def folder(self) -> Path:
        return self.package.root / "build" / f"cross-{self.machine}"

    @property
    def library(self) -> Path:
        return self.folder / self.package.library

    @property
    def env(self) -> dict[str, str]:
        """For its programs: libengram is told which libofl to open."""
        return {OFL.variable: str(OFL.root / "build" / f"cross-{self.machine}" / OFL.library)}

    def program(self, name: str) -> list[str]:
        """The words that run one of the package's test programs."""
        return [*self.emulator, str(self.folder / f"{self.package.name}_{name}")]

    def wheels(self, dist: Path) -> list[Path]:
        return list(dist.glob(f"{self.package.wheel}*linux_{self.machine}.whl"))


@dataclass
class Cases:
    """What was checked so far."""

    all: list[junit.Case] = field(default_factory=list)

    def check(self, group: str, name: str, look: Callable[[], str]) -> bool:
        """Time one check, which returns what is wrong or "", and keep it; whether it held."""
        begun = time.monotonic()
        try:
            failure = look()
        except subprocess.TimeoutExpired as error:
            failure = f"it was not done after {error.timeout:.0f} s"
        except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
            failure = str(error)
        self.all.append(junit.Case(group, name, time.monotonic() - begun, failure))
        print(f"{'FAIL' if failure else 'ok  '} {group}: {name}", flush=True)
        if failure:
            print(failure, flush=True)
        return not failure


def run(words: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> str:
    """Run a command; what it printed if it failed, else "".  Raises subprocess.TimeoutExpired, and nothing is left."""
    status, said = processes.finished(words, seconds, None if env is None else os.environ | dict(env))
    return "" if status == 0 else f"{words[0]} ended with status {status}\n{said[-4000:]}"


def verbs_headers() -> Path:
    """A folder that holds the headers of libibverbs and nothing else of the build host."""
    folder = BUILD / "cross-verbs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(VERBS, folder / "infiniband")
    return folder


def build(target: Target) -> str:
    """Library and C++ tests, warnings being errors."""
    configure = ["cmake", "-G", "Ninja", "-S", str(target.package.root), "-B", str(target.folder)]
    # The libraries that users get are optimized at link time, in their wheels; of all test programs that costs minutes.
    switches = ("WERROR=ON", "UNIT_TESTS=ON", "LTO=OFF")
    configure += [f"-D{target.package.prefix}_{switch}" for switch in switches]
    compile_all = ["cmake", "--build", str(target.folder), "--parallel", "2"]
    return run([*configure, *target.options], TEST_SECONDS) or run(compile_all, BUILD_SECONDS)


def unit_tests(target: Target, cases: Cases) -> None:
    """The C++ tests, a case for each; where the program ended without its report, a case that says so."""
    report = target.folder / "unit.xml"
    report.unlink(missing_ok=True)
    words = [*target.program("unit_tests"), "--junit", str(report)]

    def ran() -> str:
        ended = run(words, TEST_SECONDS, target.env)
        # A case that did not hold is counted by itself.
        return "" if report.is_file() else ended or "the C++ tests left no report"

    if cases.check(target.name, "the C++ tests run to their end", ran):
        found = junit.read(report, f"{target.name}.cpp")
        cases.all += found
        print(f"     {target.name}: C++ tests: {junit.summary(found)}")
        for case in found:
            if case.failure or case.skipped:
                print(f"{'FAIL' if case.failure else 'skip'} {case.name}: {case.failure or case.skipped}")


def keeps_rules(target: Target) -> str:
    found = native_library.library(target.library)
    print(f"     {target.name}: newest glibc needed: {native_library.newest_glibc(found)}")
    return "\n".join(native_library.faults(target.package, found, target.machine))


def opens(target: Target, library: Path) -> str:
    """The library is opened and used through its C ABI alone."""
    words = [*target.program("load"), str(library), *sorted(native_library.declared(target.package))]
    return run(words, TEST_SECONDS, target.env)


def same_exports(targets: Sequence[Target]) -> str:
    first, *others = [native_library.library(target.library).exports for target in targets]
    if not first:
        return "nothing is exported"
    return "\n".join(
        f"{name} is exported on one machine only, or with another version"
        for other in others
        for name in sorted({name for name, _ in set(first.items()) ^ set(other.items())})
    )


def build_wheel(target: Target, dist: Path) -> str:
    """A wheel for the target, made on this host: CMake gets the toolchain, the tag the platform."""
    for old in target.wheels(dist):
        old.unlink()
    env = {
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "CMAKE_ARGS": " ".join([*target.options, f"-D{target.package.prefix}_WERROR=ON"]),
    }
    words = ["uv", "build", "--wheel", "--no-sources", "--out-dir", str(dist), str(target.package.root)]
    failed = run(words, BUILD_SECONDS, env)
    made = len(target.wheels(dist))
    return failed or ("" if made == 1 else f"wheels for {target.name} in {dist}: {made}, not 1")


def check_wheel(target: Target, dist: Path, cases: Cases) -> None:
    if not cases.check(target.name, "a wheel is built", partial(build_wheel, target, dist)):
        return
    [wheel] = target.wheels(dist)
    print(f"     {wheel.name}")

    def keeps() -> str:
        return "\n".join(native_library.wheel_faults(target.package, wheel, target.machine))

    def opened() -> str:
        unpacked = target.folder / "wheel"
        shutil.rmtree(unpacked, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            library = archive.extract(f"{target.package.module}/{target.package.library}", unpacked)
        return opens(target, Path(library))

    cases.check(target.name, "the wheel's tag and library keep the rules", keeps)
    cases.check(target.name, "the wheel's library opens and carries a call", opened)


def check_library(target: Target, cases: Cases) -> None:
    unit_tests(target, cases)
    cases.check(target.name, "the library keeps the rules", partial(keeps_rules, target))
    look = partial(opens, target, target.library)
    cases.check(target.name, "the library opens and carries a call", look)


def targets() -> list[Target]:
    """Every package for both machines, the cross builds first."""
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}"
    uring = URING / "tree" / "usr"
    own = {
        OFL: (f"-DOFL_VERBS_INCLUDE={verbs_headers()}",),
        ENGRAM: (
            f"-DENGRAM_XXHASH_INCLUDE={XXHASH.parent}",
            f"-DENGRAM_URING_INCLUDE={uring / 'include'}",
            f"-DENGRAM_URING_LIBRARY={uring / 'lib' / 'aarch64-linux-gnu' / 'liburing.a'}",
        ),
    }
    cross = [Target(package, "aarch64", (toolchain, *own[package]), EMULATOR) for package in PACKAGES]
    return [*cross, *(Target(package, platform.machine()) for package in PACKAGES)]


def check(dist: Path) -> list[junit.Case]:
    """Everything; what needs a build that failed is left out, and the failure is there."""
    builds = Cases()
    built = [
        target
        for target in targets()
        if builds.check(target.name, "it builds without a warning", partial(build, target))
    ]
    for package in PACKAGES:
        both = [target for target in built if target.package is package]
        if len(both) == 2:
            look = partial(same_exports, both)
            builds.check(f"{package.name}.both", "the exported symbols are the same", look)
    looks = [partial(check_library, target) for target in built]
    looks += [partial(check_wheel, target, dist) for target in built if target.emulator]
    # Side by side, the longest first: tests under emulation keep one core busy.
    parts = [Cases() for _ in looks]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for done in [pool.submit(look, part) for look, part in zip(looks, parts, strict=True)]:
            done.result()
    return [case for part in (builds, *parts) for case in part.all]


def main() -> int:
    """Check and report; see the module's first lines."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    options.add_argument("--allow-skip", action="store_true")
    options.add_argument("--report", type=Path, default=BUILD / "aarch64.xml")
    options.add_argument("--wheels", type=Path, default=BUILD / "wheels")
    chosen = options.parse_args()
    reason = debian.provide(NEEDS)
    if not reason and platform.machine() != "x86_64":
        reason = f"this host is {platform.machine()}: its own tests show what a cross build would"
    reason = reason or debian.unpack(CRYPTO_PACKAGES, "arm64", CRYPTO)
    reason = reason or debian.unpack(("liburing-dev",), "arm64", URING)
    if reason:
        print(f"aarch64: {reason}", file=sys.stderr)
        skipped = junit.Case("aarch64", "everything", skipped=reason)
        failed = junit.Case("aarch64", "everything", failure=reason)
        junit.write(chosen.report, "aarch64", [skipped if chosen.allow_skip else failed])
        return 0 if chosen.allow_skip else 1
    cases = check(chosen.wheels)
    junit.write(chosen.report, "aarch64", cases)
    print(f"aarch64: {junit.summary(cases)}")
    return 1 if any(case.failure for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
