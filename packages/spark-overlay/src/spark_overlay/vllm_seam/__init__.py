"""The only place that names vLLM: what binds the remote drafter into an engine.

Reads in the order in which an engine meets it: `plugin` (the entry point), `versions` (which engines we
know), `install` (rebinding and the guard), `guard` (an engine that did not get the drafter does not start),
`refusals` and `shape` (what the engine's configuration must say), then one module per supported version with
the speculator itself.
"""
