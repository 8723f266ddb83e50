"""Run the tests of libengram against instrumented builds of it.

    python tools/sanitize.py [asan] [tsan] [-- PYTEST_ARGUMENTS]

First the C++ tests, with leaks looked for, then the Python tests in NATIVE, whose server and client live in pytest's
own process.  libofl is built with the same sanitizer, since hand-overs between the two are what ThreadSanitizer must
see.  What asan and tsan are, and what this needs, is said in the transport's sanitizers.py.  Exit status 0 only if
everything is clean.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ofl-transport" / "tools"))

import sanitizers
from native_packages import ENGRAM, OFL, PACKAGES

TESTS = ENGRAM.root / "tests"
NATIVE = ("test_server_exact.py", "test_server_refusals.py", "test_server_library.py", "test_client_*.py")
"""What says something about an instrumented library, in pytest's own process."""


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
    """The C++ tests, then the Python tests; whether all held."""
    transport, folder = sanitizers.build(OFL, name, target=OFL.name), sanitizers.build(ENGRAM, name)
    environment = {
        # Instrumented code is slow, and a peer that waits for its turn is not lost.
        "OFL_LOSS_MS": "10000",
        OFL.variable: str(transport / OFL.library),
        ENGRAM.variable: str(folder / ENGRAM.library),
        "PYTHONPATH": os.pathsep.join(str(package.root / "src") for package in PACKAGES),
    }
    return sanitizers.unit_tests(ENGRAM, folder, environment) and sanitizers.python_tests(
        name, environment, arguments or native_tests()
    )


if __name__ == "__main__":
    sys.exit(sanitizers.main(sys.argv[1:], run_tests))
