"""Typed access to the keys of a config.json.  Every refusal names the file and the key."""

import math
from collections.abc import Mapping
from pathlib import Path

from x86_worker.checkpoint.errors import CheckpointError


class Keys:
    """The keys of one JSON object, read with the type that is expected.

    A key that is null counts as absent, as it does for vLLM's readers.  section: prefix for messages, such as
    `dflash_config.`.
    """

    def __init__(self, values: Mapping[str, object], path: Path, section: str = "") -> None:
        self._values = values
        self.path = path
        self._section = section

    def refused(self, key: str, reason: str) -> CheckpointError:
        """The error to raise about a key."""
        return CheckpointError(f"{self.path}: {self._section}{key} {reason}")

    def get(self, key: str) -> object:
        """The raw value, None where absent."""
        return self._values.get(key)

    def names(self, key: str) -> bool:
        """Whether the key is there at all, be it null."""
        return key in self._values

    def stated(self) -> list[str]:
        """Names of the keys that have a value."""
        return [key for key, value in self._values.items() if value is not None]

    def section(self, key: str) -> "Keys":
        """The object under a key; an empty one where absent."""
        value = self._values.get(key)
        if value is None:
            return Keys({}, self.path, f"{self._section}{key}.")
        if not isinstance(value, dict):
            raise self.refused(key, "is not an object")
        return Keys(value, self.path, f"{self._section}{key}.")

    def count(self, key: str, default: int | None = None, *, low: int = 1) -> int:
        """An integer of at least low."""
        value = self._values.get(key)
        if value is None:
            if default is None:
                raise self.refused(key, "is missing")
            return default
        if type(value) is not int or value < low:
            raise self.refused(key, f"is {value!r} where an integer of at least {low} is needed")
        return value

    def number(self, key: str, default: float) -> float:
        """A finite number above zero."""
        value = self._values.get(key)
        if value is None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise self.refused(key, f"is {value!r} where a finite number above 0 is needed")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.optional_flag(key)
        return default if value is None else value

    def optional_flag(self, key: str) -> bool | None:
        """true, false, or None where absent."""
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self.refused(key, f"is {value!r} where true or false is needed")

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refused(key, f"is {value!r} where a string is needed")
        return value

    def counts(self, key: str) -> tuple[int, ...] | None:
        """A list of integers; None where absent or empty."""
        value = self._values.get(key)
        if value is None or value == []:
            return None
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise self.refused(key, f"is {value!r} where a list of integers is needed")
        return tuple(value)
