"""What can go wrong between us and an engine's API; every text is one sentence that names the URL."""

from ofl.contract.records import printable

SAID_CHARACTERS_MAX = 300
"""Of what a server said, at most so much goes into a sentence."""


class EngineApiError(Exception):
    """Any failure of a call; catch this."""


class EngineUnreachable(EngineApiError):
    """No connection came about, or it was lost before the reply was whole."""


class EngineTimedOut(EngineApiError):
    """The deadline of the call passed."""


class EngineRefused(EngineApiError):
    """The engine answered with another HTTP status than 200, or with an error in the middle of a stream."""

    def __init__(self, text: str, status: int) -> None:
        """status: the HTTP status; of an error in a stream what the error says, 0 where it says none."""
        super().__init__(text)
        self.status = status


class EngineReplyInvalid(EngineApiError):
    """The reply is not what the API's documentation promises; the text names the field."""


def said(text: str) -> str:
    """What a server said, in one short line without what a terminal would obey."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= SAID_CHARACTERS_MAX else f"{line[:SAID_CHARACTERS_MAX]}…"
