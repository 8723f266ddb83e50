"""A client of one vLLM engine's OpenAI-compatible HTTP API, for commands that measure or warm an engine.

Reading order: `errors` -> `address` (URLs) -> `deadline` (a socket that cannot outlast its call) -> `transport` (one
request, one reply) -> `gauges` (whether the engine is idle) -> `replies` (what the engine's JSON must hold) -> `api`
(the calls) -> `counters` (the rest of /metrics).  All but `counters` need the standard library alone, so that `probe`
can ask whether an engine is idle on a host where nothing is installed.

Must never be imported by what runs inside an engine, and never retries: whoever measures must know of every failure.
"""
