"""Why a bench gives no figures."""


class BenchRefused(Exception):
    """What would be measured is not what was asked for; the text is one sentence."""
