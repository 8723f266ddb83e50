"""What can go wrong between two engines and their comparison; every text is one sentence."""


class LogitError(ValueError):
    """A server, a file of prompts or a run that cannot be used; the text names it and the field."""
