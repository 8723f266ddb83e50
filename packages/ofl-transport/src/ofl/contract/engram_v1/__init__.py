"""The table service `engram`, version 1: OPEN, LOOKUP, STATS."""
