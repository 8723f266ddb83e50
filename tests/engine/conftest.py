"""The engine suite runs in the engine environment alone; elsewhere its files are not even imported."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]
