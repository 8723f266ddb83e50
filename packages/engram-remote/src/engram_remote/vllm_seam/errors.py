"""What the seam raises."""


class SeamError(RuntimeError):
    """This engine cannot have remote tables; one sentence that says what is in the way.

    vLLM shows tracebacks of several processes: the name in front says whose sentence it is.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(f"engram-remote: {sentence}")
