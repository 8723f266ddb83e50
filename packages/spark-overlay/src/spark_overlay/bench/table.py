"""A run's figures as a table for a person.  Pure: makes renderables, prints nothing."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_overlay.bench.result import ArmFigures, BenchResult, ContextFigures, Spread

NOT_MEASURED = "not measured"
COLUMNS = (
    "context",
    "arm",
    "first token",
    "step p50",
    "step mean",
    "tokens/s",
    "tokens/step",
    "accepted/draft",
)


def render(result: BenchResult) -> RenderableType:
    """Each context in three lines: OFF, ON, and ON over OFF."""
    table = Table(*COLUMNS)
    for column in table.columns:
        column.overflow = (
            "fold"  # on a narrow terminal a figure goes on in the next line, never into an ellipsis
        )
    for column in table.columns[2:]:
        column.justify = "right"
    for figures in result.contexts:
        for name, arm in (("OFF", figures.off), ("ON", figures.on)):
            table.add_row(str(figures.context_tokens) if name == "OFF" else "", name, *_arm(arm))
        table.add_row("", "ON/OFF", *_ratios(figures), end_section=True)
    parts: list[RenderableType] = [table, Text(_words(result))]
    if any(arm.step_p50_ms is None for one in result.contexts for arm in (one.off, one.on)):
        parts.append(
            Text(
                "step p50 not measured: the engine's front end put steps together (--stream-interval above 1, or a "
                "busy host); the mean is by the engine's own metrics"
            )
        )
    return Group(*parts)


def _words(result: BenchResult) -> str:
    return (
        f"medians of {result.repeats} repeats (least to greatest); {result.generated_tokens} tokens generated each; "
        f"times in ms; {result.how}; ON/OFF pair by pair"
    )


def _arm(arm: ArmFigures) -> tuple[str, ...]:
    accepted = "none drafted" if arm.accepted_per_draft is None else f"{arm.accepted_per_draft:.2f}"
    return (
        _shown(arm.first_token_ms, 1),
        _shown(arm.step_p50_ms, 2),
        _shown(arm.step_mean_ms, 2),
        _shown(arm.decode_tokens_per_s, 1),
        f"{arm.tokens_per_step:.2f}",
        accepted,
    )


def _ratios(figures: ContextFigures) -> tuple[str, ...]:
    ratios = figures.on_over_off
    spreads = (ratios.first_token, ratios.step_p50, ratios.step_mean, ratios.decode_tokens_per_s)
    return tuple(_shown(spread, 2) for spread in spreads)


def _shown(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return NOT_MEASURED
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f}-{spread.high:.{digits}f})"
