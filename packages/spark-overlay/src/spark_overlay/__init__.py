"""See the README."""

__version__ = "0.1.0"
