"""What delivery refuses with; each text is one sentence for an operator."""


class DeliveryError(RuntimeError):
    """Something cannot be delivered.  status: the exit status that says the same."""

    def __init__(self, sentence: str, status: int = 2) -> None:
        super().__init__(sentence)
        self.status = status
