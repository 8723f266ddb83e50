"""The qualification harness. Not built yet: the distribution reserves the name and says so."""

__version__ = "0.0.1"
