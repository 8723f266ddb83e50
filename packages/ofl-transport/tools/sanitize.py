"""Run the transport's tests against instrumented builds of libofl.so.

    python tools/sanitize.py [asan] [tsan]

asan: AddressSanitizer with UndefinedBehaviorSanitizer; tsan: ThreadSanitizer.  Both by default.  Needs cmake, a GCC
with its sanitizer runtimes, and the test environment's Python (the one that runs this).  Builds go to
build/sanitize-NAME.  Exit status 0 only if everything is clean.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = [
    "test_echo.py",
    "test_deadlines.py",
    "test_lost_peers.py",
    "test_cancel.py",
    "test_hostile.py",
    "test_limits.py",
]
SWITCHES = {"asan": ["-DOFL_ASAN=ON", "-DOFL_UBSAN=ON"], "tsan": ["-DOFL_TSAN=ON"]}
RUNTIMES = {"asan": ["libasan.so", "libubsan.so"], "tsan": ["libtsan.so"]}
# Leaks of the library are looked for in the C++ tests: the interpreter never frees all of its own memory.
OPTIONS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66:second_deadlock_stack=1"},
}


def build(name: str) -> Path:
    """Configure and build one variant with its C++ tests; returns the build folder."""
    folder = ROOT / "build" / f"sanitize-{name}"
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    subprocess.run([*configure, "-DOFL_UNIT_TESTS=ON", "-DOFL_WERROR=ON", *SWITCHES[name]], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", "2"], check=True)
    return folder


def fixed_addresses() -> list[str]:
    """ThreadSanitizer cannot live with as much address randomisation as newer kernels use."""
    return ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []


def runtime(library: str) -> str:
    compiler = os.environ.get("CXX", "c++")
    found = subprocess.run(
        [compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def run_tests(name: str, folder: Path) -> bool:
    """The C++ tests, leaks included, then the Python tests with the runtime preloaded."""
    prefix = fixed_addresses()
    if subprocess.run([*prefix, str(folder / "ofl_unit_tests")], check=False).returncode != 0:
        return False
    environment = os.environ | OPTIONS[name] | {"OFL_LIBRARY": str(folder / "libofl.so")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["LD_PRELOAD"] = " ".join(runtime(library) for library in (*RUNTIMES[name], "libstdc++.so"))
    tests = [str(ROOT / "tests" / test) for test in TESTS]
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT.parent.parent, env=environment, check=False).returncode == 0


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in SWITCHES]:
        print(f"sanitize: {unknown[0]!r} is not one of: {', '.join(SWITCHES)}", file=sys.stderr)
        return 2
    results = {name: run_tests(name, build(name)) for name in names or SWITCHES}
    for name, clean in results.items():
        print(f"sanitize: {name} {'clean' if clean else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
