"""Documents of which parts are generated: a tool writes those anew, and a test compares them.

Owns the marks around a part, `<!-- begin NAME -->` in a line of its own and `<!-- end NAME -->`.
"""

from collections.abc import Mapping
from pathlib import Path


def rewritten(text: str, made: Mapping[str, str]) -> str:
    """The text with its generated parts made anew.

    made: each part's text by its name, with a line end at its end.  What lies outside of them stays as it is.  Raises
    ValueError naming a part that the text does not have.
    """
    for name, part in made.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"there is no part {name!r}")
        text = f"{before}{begin}{part}{end}{after}"
    return text


def rewrite(folder: Path, parts: Mapping[str, Mapping[str, str]]) -> None:
    """Make the generated parts of a folder's documents anew: file -> name -> text, as `rewritten`.

    Raises ValueError as it does, OSError.
    """
    for name, made in parts.items():
        path = folder / name
        path.write_text(rewritten(path.read_text(encoding="utf-8"), made), encoding="utf-8")
