"""The plain engine's part: the same prompts, the same engine, no overlay and no speculative configuration."""

from functools import partial
from pathlib import Path

from rich.console import Console

from demo.options import PAIR
from demo.processes import Engine, engine_env
from demo.progress import Progress
from demo.texts import Text


def repeat(drafted: list[Text], folder: Path, console: Console) -> tuple[list[Text], float]:
    """Continue the same prompts for as many tokens; the texts, and seconds from first to last token, summed."""
    engine = Engine("plain engine", folder, {"model": str(PAIR / "target")}, engine_env(), [])
    try:
        with Progress(console, "starting the same engine without a drafter, to compare") as progress:
            engine.wait_ready(progress.tick)
        texts: list[Text] = []
        seconds, total = 0.0, sum(text.due for text in drafted)
        with Progress(console, "comparing") as progress:
            for wanted in drafted:
                text = Text(wanted.prompt, ordered=wanted.due)
                texts.append(text)
                engine.order(prompt=wanted.prompt, max_tokens=wanted.due, logprobs=2)
                seconds += text.collect(engine.tokens(progress.tick), partial(_told, progress, texts, total))
        engine.quit()
    finally:
        engine.end()
    return texts, seconds


def _told(progress: Progress, texts: list[Text], total: int) -> None:
    progress.update(f"comparing: {sum(len(text.ids) for text in texts)} of {total} tokens")
