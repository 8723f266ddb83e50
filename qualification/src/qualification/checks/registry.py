"""All checks, found by their files: each module of this package without a leading underscore that declares CHECK."""

import importlib
import pkgutil
from functools import cache

import qualification.checks
from qualification.checks.model import Check

NO_CHECKS = ("model", "registry")


@cache
def all_checks() -> tuple[Check, ...]:
    """In the order of their names.  Raises ValueError where two say the same name, or a file is named otherwise."""
    found: list[Check] = []
    for info in pkgutil.iter_modules(qualification.checks.__path__):
        if info.name.startswith("_") or info.name in NO_CHECKS:
            continue
        check = importlib.import_module(f"{qualification.checks.__name__}.{info.name}").CHECK
        if not isinstance(check, Check) or check.name != info.name:
            raise ValueError(f"checks/{info.name}.py must declare CHECK, of its own name")
        found.append(check)
    return _unambiguous(tuple(sorted(found, key=lambda check: check.name)))


def check_named(name: str) -> Check:
    """Raises KeyError."""
    return {check.name: check for check in all_checks()}[name]


def _unambiguous(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Raises ValueError where a check cannot run and does not say why, or where names of requests overlap."""
    for check in checks:
        if bool(check.missing) == (check.drive is not None and check.decide is not None):
            raise ValueError(f"{check.name} must either run or say what it lacks")
    prefixes = [check.requests for check in checks if not check.missing]
    for prefix in prefixes:
        if not prefix or sum(prefix.startswith(other) for other in prefixes) != 1:
            raise ValueError(f"requests that begin with {prefix!r} are of no check, or of two")
    return checks
