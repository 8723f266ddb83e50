"""What an engine's own depth policy needs of the remote costs, and what it is told.

Pure.  Some images price every depth by `VLLM_DSPARK_ROUND_MS[depth] + VLLM_DSPARK_DRAFT_MS`, measured with the local
drafter in it.  Where no local drafter runs, both must come from remote measurements: one alone would mix the two.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_overlay.depth.tables import shown

PREFIX = "VLLM_DSPARK_REMOTE"
REMOTE_DRAFT_MS, REMOTE_ROUND_MS = f"{PREFIX}_DRAFT_MS", f"{PREFIX}_ROUND_MS"
DRAFT_MS, ROUND_MS = "VLLM_DSPARK_DRAFT_MS", "VLLM_DSPARK_ROUND_MS"
"""What the engine's depth policy reads; ours replace them."""
POLICY, FILE = "VLLM_DSPARK_DEPTH_POLICY", "VLLM_DSPARK_DEPTH_FILE"
PRICING = ("conf", "confb")
"""Depth policies that price a depth by both values."""
ROWS_IN_POLICY = "confr"
"""A depth policy whose table is part of its own text, so that nothing of ours can replace it."""
FIXED, OFF = "fixed", "off"


@dataclass(frozen=True)
class Costs:
    """As the operator gave them; None where not.  draft_ms: a remote round.  round_ms: a verification by depth."""

    draft_ms: float | None = None
    round_ms: tuple[float, ...] | None = None


def depth_policy(environ: Mapping[str, str]) -> str:
    """The kind of the engine's depth policy; `off` where there is none."""
    return environ.get(POLICY, "").partition(":")[0].strip() or OFF


def problems(costs: Costs, environ: Mapping[str, str], drafts: int, *, local_costs: bool) -> Iterator[str]:
    """A sentence for each reason why this engine could not price its depths.

    drafts: K.  local_costs: a local drafter runs in every step, as in shadow, so that local measurements hold and ours
    are not used.
    """
    if local_costs:
        return
    if costs.round_ms is not None and len(costs.round_ms) != drafts + 1:
        yield (
            f"{REMOTE_ROUND_MS} has {len(costs.round_ms)} values: depths 0 to {drafts} of this engine need "
            f"exactly {drafts + 1}"
        )
    kind = depth_policy(environ)
    given = environ.get(POLICY, "")
    if kind == ROWS_IN_POLICY:
        yield (
            f"{POLICY} is {given!r}: its table was measured with the local drafter and cannot be replaced; "
            f"use {' or '.join(PRICING)}"
        )
    elif kind not in (*PRICING, FIXED, OFF):
        yield f"{POLICY} is {given!r}: known are {', '.join(PRICING)}, {FIXED}:<depth> and {OFF}"
    elif _prices(kind, environ) and (missing := _missing(costs)):
        why = f"{POLICY} is {given!r}" + (f" and {FILE} may change it" if kind == FIXED else "")
        yield (
            f"{why}: it prices depths by both costs, so {' and '.join(missing)} must be set to remote measurements "
            "(`spark-overlay calibrate` makes them)"
        )


def overrides(costs: Costs, *, local_costs: bool) -> dict[str, str]:
    """What the engine's environment must say instead; nothing where local measurements hold."""
    if local_costs:
        return {}
    found = {}
    if costs.draft_ms is not None:
        found[DRAFT_MS] = shown([costs.draft_ms])
    if costs.round_ms is not None:
        found[ROUND_MS] = shown(costs.round_ms)
    return found


def _prices(kind: str, environ: Mapping[str, str]) -> bool:
    return kind in PRICING or (kind == FIXED and bool(environ.get(FILE)))


def _missing(costs: Costs) -> list[str]:
    given = {REMOTE_DRAFT_MS: costs.draft_ms, REMOTE_ROUND_MS: costs.round_ms}
    return [name for name, value in given.items() if value is None]
