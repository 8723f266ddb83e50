"""Where a reader stands with its server: what is recorded as `TableOpened`."""

import re
from dataclasses import dataclass

REFUSED = re.compile(r"refused OPEN \((\w+)\)")
IDENTITY = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True)
class Standing:
    """See `TableOpened`."""

    status: str
    refused: str = ""
    offered: str = ""


def standing(open_now: bool, text: str, identity: str) -> Standing:
    """Of what a client says of its connection.  identity: its own.

    A refusal for the identity names both; the one that is not ours is the server's.
    """
    if open_now:
        return Standing("open")
    refusal = REFUSED.search(text)
    if refusal is None:
        return Standing("closed")
    others = [found for found in IDENTITY.findall(text) if found != identity]
    return Standing("refused", refusal[1], others[0] if others else "")
