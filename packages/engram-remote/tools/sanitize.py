"""Run the tests of libengram against instrumented builds of it.

    python tools/sanitize.py [asan] [tsan] [-- PYTEST_ARGUMENTS]

asan: AddressSanitizer with UndefinedBehaviorSanitizer; tsan: ThreadSanitizer.  Both by default.  First the C++ tests,
with leaks looked for, then the Python tests in NATIVE, whose server and client live in pytest's own process.  libofl is
built with the same sanitizer, since hand-overs between the two are what ThreadSanitizer must see.  Needs cmake, a GCC
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
TRANSPORT = ROOT.parent / "ofl-transport"
TESTS = ROOT / "tests"
NATIVE = ("test_server_exact.py", "test_server_refusals.py", "test_server_library.py", "test_client_*.py")
"""What says something about an instrumented library, in pytest's own process."""
SWITCHES = {"asan": ("ASAN", "UBSAN"), "tsan": ("TSAN",)}
RUNTIMES = {"asan": ["libasan.so", "libubsan.so"], "tsan": ["libtsan.so"]}
# Leaks of the library are looked for in the C++ tests: the interpreter never frees all of its own memory.
OPTIONS = {
    "asan": {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66:second_deadlock_stack=1"},
}


def build(source: Path, prefix: str, name: str, *switches: str, target: str = "all") -> Path:
    """Configure and build one package in one variant; returns the build folder."""
    folder = ROOT / "build" / f"sanitize-{name}" / prefix.lower()
    configure = ["cmake", "-S", str(source), "-B", str(folder), "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    options = [f"-D{prefix}_{switch}=ON" for switch in (*SWITCHES[name], "WERROR", *switches)]
    subprocess.run([*configure, *options], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", "2", "--target", target], check=True)
    return folder


def fixed_addresses() -> list[str]:
    """ThreadSanitizer cannot live with as much address randomisation as newer kernels use."""
    return ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []


def runtime(library: str) -> str:
    """Path of a runtime of the compiler's."""
    compiler = os.environ.get("CXX", "c++")
    found = subprocess.run(
        [compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def native_tests() -> list[str]:
    """The files that NATIVE names; raises FileNotFoundError for a pattern without any."""
    found = []
    for pattern in NATIVE:
        files = sorted(TESTS.glob(pattern))
        if not files:
            raise FileNotFoundError(f"NATIVE of sanitize.py names {pattern}, which is not in {TESTS}")
        found += [str(file) for file in files]
    return found


def run_tests(name: str, arguments: list[str]) -> bool:
    """The C++ tests, leaks included, then the Python tests with the runtime preloaded."""
    transport = build(TRANSPORT, "OFL", name, target="ofl")
    folder = build(ROOT, "ENGRAM", name, "UNIT_TESTS")
    prefix = fixed_addresses()
    # Instrumented code is slow, and a peer that waits for its turn is not lost.
    environment = os.environ | {"OFL_LOSS_MS": "10000", "OFL_LIBRARY": str(transport / "libofl.so")}
    tests = subprocess.run([*prefix, str(folder / "engram_unit_tests")], env=environment, check=False)
    if tests.returncode != 0:
        return False
    environment |= OPTIONS[name] | {"ENGRAM_LIBRARY": str(folder / "libengram.so")}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(TRANSPORT / "src")))
    environment["LD_PRELOAD"] = " ".join(runtime(library) for library in (*RUNTIMES[name], "libstdc++.so"))
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += arguments or native_tests()
    return subprocess.run(command, cwd=ROOT.parent.parent, env=environment, check=False).returncode == 0


def main(words: list[str]) -> int:
    """Run the variants that are named, or all."""
    names = words[: words.index("--")] if "--" in words else words
    arguments = words[len(names) + 1 :]
    if unknown := [name for name in names if name not in SWITCHES]:
        print(f"sanitize: {unknown[0]!r} is not one of: {', '.join(SWITCHES)}", file=sys.stderr)
        return 2
    results = {name: run_tests(name, arguments) for name in names or SWITCHES}
    for name, clean in results.items():
        print(f"sanitize: {name} {'clean' if clean else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
