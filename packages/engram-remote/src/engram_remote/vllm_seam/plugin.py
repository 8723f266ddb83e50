"""The general plugin: the function that vLLM calls in each of its processes before it builds anything.

Owns the switch: without `VLLM_ENGRAM_REMOTE` it does nothing and imports nothing.  This module must never fail to
import: vLLM logs and swallows an entry point's import error and would serve its own table.  So nothing but the standard
library stands at its top, and all else is imported inside `register`, whose exceptions end the engine.
"""

import os

SWITCH = "VLLM_ENGRAM_REMOTE"
"""The setting that asks for remote tables; empty or unset: stock vLLM, untouched."""


def register() -> None:
    """Bind the remote tables into this process.  May be called any number of times.

    Raises SettingsError on a setting that cannot be served and SeamError where this engine cannot be bound.
    """
    if not os.environ.get(SWITCH):
        return
    try:
        from engram_remote.vllm_seam.install import install

        install(os.environ)
    except BaseException:
        _load_again_next_time()
        raise


def _load_again_next_time() -> None:
    """vLLM takes plugins as loaded also when one raised: this process's next engine would be stock."""
    import vllm.plugins

    vllm.plugins.plugins_loaded = False
