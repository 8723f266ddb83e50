"""Instrumented builds of a package's library, and tests against them: what every package's sanitize.py shares.

asan: AddressSanitizer with UndefinedBehaviorSanitizer; tsan: ThreadSanitizer.  Needs cmake, a GCC with its sanitizer
runtimes, and the test environment's Python (the one that runs this).  Owns how those are called; which tests say
something about a library is its package's to know.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from native_packages import REPOSITORY, NativePackage

SWITCHES = {"asan": ("ASAN", "UBSAN"), "tsan": ("TSAN",)}
RUNTIMES = {"asan": ("libasan.so", "libubsan.so"), "tsan": ("libtsan.so",)}
# Leaks of the library are looked for in the C++ tests: the interpreter never frees all of its own memory.
OPTIONS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66:second_deadlock_stack=1"},
}


def build(package: NativePackage, name: str, target: str = "all") -> Path:
    """Configure and build one variant, all or one target of it, into build/sanitize-NAME; that folder."""
    folder = package.root / "build" / f"sanitize-{name}"
    configure = ["cmake", "-S", str(package.root), "-B", str(folder), "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    switches = (*SWITCHES[name], "UNIT_TESTS", "WERROR")
    subprocess.run([*configure, *(f"-D{package.prefix}_{switch}=ON" for switch in switches)], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", "2", "--target", target], check=True)
    return folder


def unit_tests(package: NativePackage, folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether the C++ tests hold, leaks included."""
    command = [*_fixed_addresses(), str(folder / f"{package.name}_unit_tests")]
    return subprocess.run(command, env=os.environ | dict(environment), check=False).returncode == 0


def python_tests(name: str, environment: Mapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether pytest, called with the arguments and the sanitizer's runtime preloaded, finds that all tests hold."""
    preloaded = [_runtime(library) for library in (*RUNTIMES[name], "libstdc++.so")]
    env = os.environ | OPTIONS[name] | dict(environment) | {"LD_PRELOAD": " ".join(preloaded)}
    command = [*_fixed_addresses(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *arguments], cwd=REPOSITORY, env=env, check=False).returncode == 0


def main(words: Sequence[str], run_tests: Callable[[str, list[str]], bool]) -> int:
    """The command line, `[asan] [tsan] [-- PYTEST_ARGUMENTS]`: both variants by default.  The exit status.

    run_tests: given a variant and pytest's arguments, whether everything held.
    """
    names = list(words[: words.index("--")] if "--" in words else words)
    arguments = list(words[len(names) + 1 :])
    if unknown := [name for name in names if name not in SWITCHES]:
        print(f"sanitize: {unknown[0]!r} is not one of: {', '.join(SWITCHES)}", file=sys.stderr)
        return 2
    results = {name: run_tests(name, arguments) for name in names or SWITCHES}
    for name, clean in results.items():
        print(f"sanitize: {name} {'clean' if clean else 'FAILED'}")
    return 0 if all(results.values()) else 1


def _fixed_addresses() -> list[str]:
    """ThreadSanitizer cannot live with as much address randomisation as newer kernels use."""
    return ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []


def _runtime(library: str) -> str:
    """Path of a runtime of the compiler's."""
    compiler = os.environ.get("CXX", "c++")
    found = subprocess.run(
        [compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()
