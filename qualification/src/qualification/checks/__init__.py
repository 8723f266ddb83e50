"""The checks.  Each file but `model` is one check: what it drives, and what it concludes from observations."""
