"""Observation of an engine from inside, for qualification.  Off unless `VLLM_DSPARK_OBSERVE` names a folder.

Nothing imports this package while it is off, and the objects that run are then of the stock classes.  On, hooks are
put on the built engine's objects, never on classes: `watch` on a rank's steps, `exchanges` on the connection, `shadow`
on the comparison, `faults` under the connection.  Their records (`ofl.contract.observation_v1`) hold metadata, equality
and blind tags, never content.  Hooks read what an engine is called with and what leaves it, never the product's
counters.  No torch or vLLM here: `vllm_seam.observing` and `simulated` say what a step of theirs is.
"""
