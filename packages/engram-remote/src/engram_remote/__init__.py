"""Engram tables served from another host's RAM: rows are exact, or they are refused."""

__version__ = "0.1.0"
