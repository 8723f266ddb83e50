"""Root of the test tree: engine tests are collected only where an engine can be imported, and the report says so."""

import contextlib
import importlib.util

# pytest names test modules by their path; the folder `qualification` would then stand for the package of that name.
with contextlib.suppress(ModuleNotFoundError):
    import qualification.cli  # noqa: F401

HAS_ENGINE = all(importlib.util.find_spec(name) for name in ("torch", "vllm"))
collect_ignore = [] if HAS_ENGINE else ["tests/engine"]


def pytest_report_header() -> str:
    """One line that tells whether the engine tests are in this run."""
    return (
        "engine tests: collected"
        if HAS_ENGINE
        else "engine tests: not collected here (run `nox -s engine_test`)"
    )
