"""Consoles that show texts of others as they are: what stands in brackets is no markup, a name in colons no picture."""

from rich.console import Console


def plain_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """width: None: the terminal's."""
    return Console(stderr=stderr, width=width, markup=False, emoji=False)
