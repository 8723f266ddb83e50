"""Doctor on an engine's host: what `ofl.doctor` finds there, and what the engine needs beside it.

`asks` and `gather` make facts, `checks` judges them and asks nobody.  Imports no vLLM and starts no engine.
"""
