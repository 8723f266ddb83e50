"""Observation of an engine's table rows from inside, for qualification.  Off unless `VLLM_DSPARK_OBSERVE` is set.

Nothing imports this package while it is off, and the reader that runs is then the client itself.  On, `watch` puts a
hook on the client's object.  Its records (`ofl.contract.observation_v1`) are computed from the ids that a lookup is
called with and from the bytes in its staging when it has ended, never from the product's counters; they hold metadata,
equality and blind tags, never an id or a row.
"""
