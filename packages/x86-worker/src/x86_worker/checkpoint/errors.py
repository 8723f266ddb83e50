"""The one exception of this package.  Every message is one sentence that names the file and the key or
tensor.
"""


class CheckpointError(Exception):
    """A folder is not a drafter (or target) that we can read; the message says which file and what in it."""
