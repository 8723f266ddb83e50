"""Which depth won a measurement, or that none did.  Pure.

Every repeat measures each depth once with the same prompt, so that depths are compared within a repeat: what differs
between prompts, or drifts on the host, falls on all of them.  Compared are ratios, by their logarithms: a slow prompt
counts as much as a fast one.  A depth beats another where the mean is farther from 0 than chance puts it in 19 of 20
measurements (Student's t, two-sided 95 %).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import expm1, log, sqrt

REPEATS_MIN = 3
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""By degrees of freedom from 1; more of them come close to the last (Abramowitz and Stegun, table 26.10)."""


@dataclass(frozen=True)
class Verdict:
    """best: the one depth that beat all others; None where noise hides which.  candidates: depths that nothing beat
    beyond noise, the fastest first.  sentence: the same for people.
    """

    best: int | None
    candidates: tuple[int, ...]
    sentence: str


def judge(tokens_per_s: Mapping[int, Sequence[float]]) -> Verdict:
    """Which depth is best.  tokens_per_s: above 0, by depth, of each repeat in the same order, at least REPEATS_MIN."""
    counts = {len(values) for values in tokens_per_s.values()}
    assert len(counts) == 1, "every repeat measures every depth"
    assert min(counts) >= REPEATS_MIN, "so few repeats say nothing of noise"
    means = {depth: statistics.fmean(map(log, values)) for depth, values in tokens_per_s.items()}
    order = sorted(means, key=lambda depth: (-means[depth], depth))
    leader = order[0]
    tied = [depth for depth in order[1:] if not beats(tokens_per_s[leader], tokens_per_s[depth])]
    if not tied:
        return Verdict(leader, (leader,), _won(tokens_per_s, order))
    gap, noise = difference(tokens_per_s[leader], tokens_per_s[tied[0]])
    names = ", ".join(str(depth) for depth in sorted([leader, *tied]))
    sentence = (
        f"no best depth: {names} cannot be told apart; {leader} led {tied[0]} by {_percent(gap)}, within "
        f"the noise of {_percent(noise)} (more --repeats or longer --generate narrow it)"
    )
    return Verdict(None, (leader, *tied), sentence)


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether one is larger beyond noise."""
    gap, noise = difference(one, other)
    return gap > noise


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Mean of the logarithms of the ratios within repeats, and how far from 0 chance alone would put it."""
    found = [log(first / second) for first, second in zip(one, other, strict=True)]
    quantile = T_95[min(len(found) - 1, len(T_95)) - 1]
    return statistics.fmean(found), quantile * statistics.stdev(found) / sqrt(len(found))


def _won(tokens_per_s: Mapping[int, Sequence[float]], order: Sequence[int]) -> str:
    if len(order) == 1:
        return f"depth {order[0]} alone was measured"
    best, second = order[:2]
    gap, noise = difference(tokens_per_s[best], tokens_per_s[second])
    return f"best depth {best}: {_percent(gap)} faster than depth {second}, the next, with a noise of {_percent(noise)}"


def _percent(logarithm: float) -> str:
    return f"{100 * expm1(logarithm):.1f} %"
