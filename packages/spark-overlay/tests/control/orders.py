"""A control file that exists in the test alone, and what settles it."""

from spark_overlay.control.reader import Reading
from spark_overlay.control.record import ControlRecord


class Orders:
    """A `Source`: the test says what the file says."""

    name = "/run/control.json"

    def __init__(self) -> None:
        self.record = ControlRecord()
        self._reading: Reading | None = Reading(self.record, present=False)

    def poll(self) -> Reading | None:
        reading, self._reading = self._reading, None
        return reading

    def say(self, **changes: object) -> None:
        """Another record in the file."""
        self.record = self.record.changed(**changes)
        self._reading = Reading(self.record)

    def break_it(self, problem: str = "is not JSON") -> None:
        """A file that cannot be obeyed."""
        self._reading = Reading(None, problem)

    def remove(self) -> None:
        """No file."""
        self.record = ControlRecord()
        self._reading = Reading(self.record, present=False)


class Heard:
    """A `Controlled` that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.on_order = False

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def rearm(self) -> None:
        self.told.append("rearm")
