"""What the seam raises while an engine starts; each text is one sentence for an operator."""


class SeamError(RuntimeError):
    """The remote drafter was asked for and cannot take effect; the engine must not start."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"spark-overlay: {sentence}")


class RemoteRoundFailed(RuntimeError):
    """A round failed in an engine whose operator asked it to stop on that."""
