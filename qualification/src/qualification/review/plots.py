"""Figures as SVG to stand within a page: readable in grey, at any width, without fonts of their own."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from qualification.review.measure import Measured, bucket_name

STYLE: Mapping[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "review",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
OFF_LINE: Mapping[str, Any] = {"color": "#767676", "linestyle": "--", "linewidth": 2.2}
ON_LINE: Mapping[str, Any] = {"color": "#111111", "linestyle": "-", "linewidth": 1.6}
OFF_BAR: Mapping[str, Any] = {"facecolor": "#ffffff", "edgecolor": "#333333", "hatch": "////"}
ON_BAR: Mapping[str, Any] = {"facecolor": "#555555", "edgecolor": "#111111"}
POINTS_MAX = 400
"""Of a curve: more cannot be told apart, and would make the page heavy."""
_ID = re.compile(r'(\bid="|url\(#|href="#)')


def shares(off: Sequence[float], on: Sequence[float], prefix: str) -> str:
    """Which share of both took no longer than so many milliseconds.  prefix: of ids, unique in a page."""
    with matplotlib.rc_context(dict(STYLE)):
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        axes = figure.subplots()
        for values, look, word in ((off, OFF_LINE, "OFF"), (on, ON_LINE, "ON")):
            if values:
                axes.step(*_curve(values), where="post", label=word, **look)
        axes.set_xlabel("milliseconds")
        axes.set_ylabel("share of them")
        if min([*off, *on], default=0.0) > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.02)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(loc="lower right", frameon=False)
        return _svg(figure, prefix)


def acceptance(off: Measured, on: Measured, prefix: str) -> str:
    """Share of drafts that the target accepted, by length of the prompt."""
    buckets = sorted({*off.acceptance, *on.acceptance})
    with matplotlib.rc_context(dict(STYLE)):
        figure = Figure(figsize=(9, 3.0), layout="constrained")
        axes = figure.subplots()
        for shift, measured, look, word in ((-0.2, off, OFF_BAR, "OFF"), (0.2, on, ON_BAR, "ON")):
            there = [at for at, bucket in enumerate(buckets) if bucket in measured.acceptance]
            shares = [measured.acceptance[buckets[at]].share for at in there]
            bars = axes.bar([at + shift for at in there], shares, 0.36, label=word, **look)
            axes.bar_label(bars, [f"{share:.2f}" for share in shares], padding=2)
        axes.set_xticks(range(len(buckets)), [bucket_name(bucket) for bucket in buckets])
        axes.set_xlabel("tokens of the prompt")
        axes.set_ylabel("drafts accepted")
        axes.set_ylim(0, 1.12)
        axes.legend(loc="upper right", frameon=False, ncols=2)
        return _svg(figure, prefix)


def _curve(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Values in order and the share that each is not exceeded by; no more points than can be told apart."""
    ordered = sorted(values)
    every = max(1, len(ordered) // POINTS_MAX)
    places = sorted({*range(0, len(ordered), every), len(ordered) - 1})
    return [ordered[place] for place in places], [(place + 1) / len(ordered) for place in places]


def _svg(figure: Figure, prefix: str) -> str:
    """The figure without its prologue; ids get the prefix, since several figures stand in one page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _ID.sub(lambda found: f"{found[1]}{prefix}-", text)
    return text.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
