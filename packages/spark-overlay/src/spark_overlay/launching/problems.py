"""What is wrong with a launch config: one sentence each, with the file and the field.

Owns the error and the suggestion of the nearest name.
"""

import difflib
from collections.abc import Iterable, Sequence


class Problem:
    """One thing that is wrong.  sentence: what.  source: of which file, or --set.  field: dotted, "" for the whole."""

    def __init__(self, sentence: str, source: str, field: str = "") -> None:
        self.sentence, self.source, self.field = sentence, source, field

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.field, self.sentence) if part)


class ConfigError(ValueError):
    """A config, a site or an option that cannot be served; the text has a line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def check(problems: Iterable[Problem]) -> None:
    """Raises ConfigError where there are any."""
    found = list(problems)
    if found:
        raise ConfigError(found)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that does not exist."""
    near = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
