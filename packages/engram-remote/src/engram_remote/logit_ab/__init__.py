"""Whether two engines say the same: greedy log-probabilities compared, against the noise of one engine alone.

In the order of use: `prompts`, `api` (one OpenAI-compatible request), `record` (a run's file), `measure` (two samples
of one prompt), `compare` (runs against the noise floor), `errors`.  Knows nothing of tables; needs no engine but
over HTTP.
"""
