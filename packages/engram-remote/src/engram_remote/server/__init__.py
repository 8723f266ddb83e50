"""The server's side: memory for tables, loading and verifying, the service over libengram, metrics, the life of
the process.

In the order in which a table meets it: `preflight`, `memory`, `load`, `service`, `metrics`, `life`.
"""
