"""A promotion's policy: what the gate demands.  TOML, reviewed apart from code; nothing in it can be left out."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from qualification.checks.model import Check
from qualification.checks.registry import all_checks
from qualification.receipts.canonical import field_violations
from qualification.receipts.fields import Count, Line, Model, Name, Number, Word, text
from qualification.receipts.files import read_given
from qualification.receipts.judge import twice
from qualification.receipts.statement import Kind

_BYTES_MAX = 256 * 1024


class PolicyError(Exception):
    """A policy that cannot be used; one sentence per line, each naming the field."""


class Limit(Model):
    """A threshold that a receipt must have been decided by, or by a stricter one.  One bound of the two.

    at_least: where more is stricter.  at_most: where less is.
    """

    check: Name
    name: Name
    at_least: Number | None = None
    at_most: Number | None = None


class PlatformRule(Model):
    """What every arm must have run on.  engine_versions: without local parts.  transports: of arms that have one."""

    engine: Word
    engine_versions: Annotated[tuple[Word, ...], Field(min_length=1)]
    devices: Annotated[tuple[Word, ...], Field(min_length=1)]
    ranks: Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], Field(min_length=1)]
    transports: Annotated[tuple[Word, ...], Field(min_length=1)]


class Policy(Model):
    """promotion: what is promoted, in a sentence.  minimum_counter: receipts below it are old and count for nothing.

    required_subjects: kinds that the subjects file must name.
    """

    format: Literal["urn:spark-offload:qualification:policy:v1"]
    name: Annotated[
        str, text(r"^[a-z][a-z0-9-]{0,63}(?!\n)$", "a name of lower-case letters, digits and dashes")
    ]
    promotion: Line
    evidence_class: Literal["native"]
    minimum_counter: Annotated[Count, Field(ge=1)]
    required_checks: Annotated[tuple[Name, ...], Field(min_length=1)]
    required_subjects: Annotated[tuple[Kind, ...], Field(min_length=1)]
    platform: PlatformRule
    thresholds: tuple[Limit, ...]


def tightened(check: Check, policy: Policy | None) -> dict[str, float]:
    """The thresholds that a check is decided by: its own, or the policy's where those are stricter."""
    values = dict(check.thresholds)
    for limit in policy.thresholds if policy is not None else ():
        if limit.check == check.name and limit.name in values:
            if limit.at_least is not None:
                values[limit.name] = max(values[limit.name], limit.at_least)
            if limit.at_most is not None:
                values[limit.name] = min(values[limit.name], limit.at_most)
    return values


def read_policy(path: Path) -> Policy:
    """A policy file.  Raises PolicyError: it cannot be read, a field is wrong or unknown, or a check is."""
    try:
        data = read_given(path, _BYTES_MAX)
    except OSError as error:
        raise PolicyError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > _BYTES_MAX:
        raise PolicyError(f"{path} has more than {_BYTES_MAX} bytes.")
    return parse_policy(data, str(path))


def parse_policy(data: bytes, where: str) -> Policy:
    """As `read_policy`, from bytes."""
    try:
        raw = json.dumps(tomllib.loads(data.decode("utf-8")), allow_nan=False)
        policy = Policy.model_validate_json(raw)
    except ValidationError as error:
        said = [f"{where}: {one.sentence}." for one in field_violations(error, where)]
        raise PolicyError("\n".join(said)) from None
    except TypeError:
        raise PolicyError(f"{where}: a date or time stands where none belongs.") from None
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where}: no TOML that can be used: {error}.") from None
    if wrong := _unusable(policy):
        raise PolicyError("\n".join(f"{where}: {sentence}" for sentence in wrong))
    return policy


def _unusable(policy: Policy) -> list[str]:
    checks = {check.name: check for check in all_checks()}
    found = [
        f"required_checks names {name}, which is no check."
        for name in policy.required_checks
        if name not in checks
    ]
    for field in ("required_checks", "required_subjects"):
        found += [f"{field} names {value} twice." for value in twice(list(getattr(policy, field)))]
    for limit in policy.thresholds:
        if (limit.at_least is None) == (limit.at_most is None):
            found.append(f"thresholds: {limit.check} {limit.name} needs at_least or at_most, and not both.")
        if limit.check not in policy.required_checks:
            found.append(f"thresholds: {limit.check} is not among required_checks.")
        elif limit.check in checks and limit.name not in checks[limit.check].thresholds:
            found.append(f"thresholds: {limit.check} has no threshold {limit.name}.")
    found += [
        f"thresholds: {value} stands twice."
        for value in twice([f"{limit.check} {limit.name}" for limit in policy.thresholds])
    ]
    return found
