"""Run the transport's tests against instrumented builds of libofl.so, over TCP and shared memory.

    python tools/sanitize.py [asan] [tsan] [-- PYTEST_ARGUMENTS]

asan: AddressSanitizer with UndefinedBehaviorSanitizer; tsan: ThreadSanitizer.  Both by default.  First the C++ tests,
with leaks looked for, then all Python tests of the transport but those in LEFT_OUT.  Needs cmake, a GCC with its
sanitizer runtimes, and the test environment's Python (the one that runs this).  Builds go to build/sanitize-NAME.  Exit
status 0 only if everything is clean.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LEFT_OUT = {
    "contract": "needs no library",
    "rdma": "needs an RDMA device",
    "two_vms": "needs RDMA devices of two hosts",
    "test_rdma_vm.py": "needs no library",
    "test_bench_peers.py": "runs other people's programs",
    "test_cpp_includes.py": "reads sources",
    "test_ofl_docs.py": "reads documents",
    "test_ofl_install.py": "loads the library where the sanitizer's runtime is not preloaded",
    "test_second_opinion_document.py": "reads documents",
    "test_security_docs.py": "reads documents",
}
"""Of the folder of tests, what says nothing about an instrumented library, and why.  Everything else runs."""
TIME_SCALE = {"asan": 2, "tsan": 4}
"""How much slower an instrumented library may be before a test calls a peer lost."""
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


def left_out() -> list[str]:
    """pytest's options; raises FileNotFoundError for what is not there any more."""
    for name in LEFT_OUT:
        if not (TESTS / name).exists():
            raise FileNotFoundError(f"LEFT_OUT of sanitize.py names {name}, which is not in {TESTS}")
    return [f"--ignore={TESTS / name}" for name in LEFT_OUT]


def run_tests(name: str, folder: Path, arguments: list[str]) -> bool:
    """The C++ tests, leaks included, then the Python tests with the runtime preloaded."""
    prefix = fixed_addresses()
    if subprocess.run([*prefix, str(folder / "ofl_unit_tests")], check=False).returncode != 0:
        return False
    environment = os.environ | OPTIONS[name] | {"OFL_LIBRARY": str(folder / "libofl.so")}
    environment |= {"OFL_TEST_BACKENDS": "tcp,shm", "OFL_TEST_TIME_SCALE": str(TIME_SCALE[name])}
    environment["PYTHONPATH"] = str(ROOT / "src")
    environment["LD_PRELOAD"] = " ".join(runtime(library) for library in (*RUNTIMES[name], "libstdc++.so"))
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *left_out()]
    command += arguments or [str(TESTS)]
    return subprocess.run(command, cwd=ROOT.parent.parent, env=environment, check=False).returncode == 0


def main(words: list[str]) -> int:
    names = words[: words.index("--")] if "--" in words else words
    arguments = words[len(names) + 1 :]
    if unknown := [name for name in names if name not in SWITCHES]:
        print(f"sanitize: {unknown[0]!r} is not one of: {', '.join(SWITCHES)}", file=sys.stderr)
        return 2
    results = {name: run_tests(name, build(name), arguments) for name in names or SWITCHES}
    for name, clean in results.items():
        print(f"sanitize: {name} {'clean' if clean else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
