"""What the harness calls a request that the engine calls otherwise.

vLLM appends `-` and eight hex digits to the names that it is given; in every record and fault a request has the name
that it was given.  So the harness must give none that ends like that.
"""

import re

_APPENDED = re.compile(r"-[0-9a-f]{8}\Z")


def harness_name(engine_name: str) -> str:
    """The name as it was given."""
    return _APPENDED.sub("", engine_name)
