"""Both ends of an arm: the processes that run an engine, and the runner's client of one.

`simulator` and `vllm_engine` are run by the engine's own Python: they and what they import need the standard library,
`ofl`, and what that engine brings.  Only `vllm_engine` names vLLM.
"""
