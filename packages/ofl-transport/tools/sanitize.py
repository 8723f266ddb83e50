"""Run the transport's tests against instrumented builds of libofl.so, over TCP and shared memory.

    python tools/sanitize.py [asan] [tsan] [-- PYTEST_ARGUMENTS]

First the C++ tests, with leaks looked for, then all Python tests of the transport but those in LEFT_OUT.  What asan and
tsan are, and what this needs, is said in sanitizers.py.  Exit status 0 only if everything is clean.
"""

import sys

import sanitizers
from native_packages import OFL

TESTS = OFL.root / "tests"
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


def left_out() -> list[str]:
    """pytest's options; raises FileNotFoundError for what is not there any more."""
    for name in LEFT_OUT:
        if not (TESTS / name).exists():
            raise FileNotFoundError(f"LEFT_OUT of sanitize.py names {name}, which is not in {TESTS}")
    return [f"--ignore={TESTS / name}" for name in LEFT_OUT]


def run_tests(name: str, arguments: list[str]) -> bool:
    """The C++ tests, then the Python tests; whether all held."""
    folder = sanitizers.build(OFL, name)
    environment = {
        OFL.variable: str(folder / OFL.library),
        "OFL_TEST_BACKENDS": "tcp,shm",
        "OFL_TEST_TIME_SCALE": str(TIME_SCALE[name]),
        "PYTHONPATH": str(OFL.root / "src"),
    }
    chosen = [*left_out(), *(arguments or [str(TESTS)])]
    return sanitizers.unit_tests(OFL, folder, {}) and sanitizers.python_tests(name, environment, chosen)


if __name__ == "__main__":
    sys.exit(sanitizers.main(sys.argv[1:], run_tests))
