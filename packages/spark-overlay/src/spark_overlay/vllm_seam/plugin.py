"""The general plugin: the function that vLLM calls in each of its processes before it builds anything.

Owns the switches: without `VLLM_DSPARK_REMOTE` and `VLLM_DSPARK_OBSERVE` it does nothing and imports nothing.  This
module must never fail to import: vLLM logs and swallows an entry point's import error and would serve without us.  So
nothing but the standard library stands at its top, and all else is imported inside `register`, whose exceptions end
the engine.
"""

import os

SWITCH = "VLLM_DSPARK_REMOTE"
"""The setting that asks for the remote drafter; empty or unset: stock vLLM, untouched."""
OBSERVE = "VLLM_DSPARK_OBSERVE"
"""The setting that asks for observation, for qualification, of whatever drafts; empty or unset: no hook anywhere."""


def register() -> None:
    """Bind the remote drafter, or observation, into this process.  May be called any number of times.

    Raises SettingsError on a setting that cannot be served and SeamError where this engine cannot be bound.
    """
    remote, observed = bool(os.environ.get(SWITCH)), bool(os.environ.get(OBSERVE))
    if not (remote or observed):
        return
    from spark_overlay.refusal import left_behind

    try:
        with left_behind(os.environ):
            if observed:
                from spark_overlay.vllm_seam.observing import observe_engines

                observe_engines(os.environ)
            if remote:
                from spark_overlay.vllm_seam.install import install

                install(os.environ)
    except BaseException:
        _load_again_next_time()
        raise


def _load_again_next_time() -> None:
    """vLLM takes plugins as loaded also when one raised: this process's next engine would be stock."""
    import vllm.plugins

    vllm.plugins.plugins_loaded = False
