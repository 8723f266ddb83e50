"""An engine that was asked for the remote drafter and did not get it does not start.

Owns the choke point: every engine process builds its worker through vLLM's `WorkerWrapperBase`, whatever the
executor, the model runner or the device.  Three of its methods are wrapped.  `init_device` first refuses what
cannot be served, and when it is through, the model runner must hold our speculator.
`compile_or_warm_up_model` is the last thing before an engine serves: there, on every rank, the speculator is
looked for again; rank 0 starts the drafter, and writes the readiness record once all ranks have said that they
hold theirs.  `shutdown` ends the drafter.  A refusal in either of the first two is left where the launcher finds it.
"""

import os
from collections.abc import Callable
from typing import Any

from spark_overlay.refusal import left_behind
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.refusals import refuse

MARK = "_spark_overlay_policy"
"""Attribute of the wrapper class: the policy that was asked for."""
PREPARE = "_spark_overlay_prepare"
"""Another one: what is done with the engine's configuration before it gets a model runner."""


def guard(wrapper: Any, policy: str, prepare: Callable[[Any], None] = lambda config: None) -> None:
    """Wrap the methods of vLLM's WorkerWrapperBase; again on the same class: only what was asked for is told anew.

    prepare: called with a configuration that is not refused, before a device is touched; it may refuse too.
    """
    wrapped = hasattr(wrapper, MARK)
    setattr(wrapper, MARK, policy)
    setattr(wrapper, PREPARE, staticmethod(prepare))
    if wrapped:
        return
    _guard_init_device(wrapper)
    _guard_warm_up(wrapper)
    _guard_shutdown(wrapper)


def speculator_of(wrapped: Any) -> Any:
    """The remote speculator that a worker's model runner holds; raises SeamError where there is none."""
    runner, speculator = _held(wrapped)
    if not _is_ours(speculator):
        held = "no speculator" if speculator is None else f"a {type(speculator).__name__}"
        raise SeamError(
            f"VLLM_DSPARK_REMOTE is set, but the {type(runner).__name__} holds {held} "
            "instead of the remote drafter's"
        )
    asked = getattr(wrapped, MARK)
    if speculator.policy_name != asked:
        raise SeamError(f"policy {asked!r} was asked for, but the speculator's is {speculator.policy_name!r}")
    return speculator


def _guard_init_device(wrapper: Any) -> None:
    original = wrapper.init_device

    def init_device(self: Any) -> Any:
        with left_behind(os.environ, of_ours_alone=True):
            refuse(self.vllm_config, getattr(self, MARK))
            getattr(self, PREPARE)(self.vllm_config)
            done = original(self)
            speculator_of(self)
        return done

    wrapper.init_device = init_device


def _guard_warm_up(wrapper: Any) -> None:
    original = getattr(wrapper, "compile_or_warm_up_model", None)

    def compile_or_warm_up_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Where the wrapper has no such method of its own it hands every unknown name to its worker.
        call = self.worker.compile_or_warm_up_model if original is None else original.__get__(self)
        done = call(*args, **kwargs)
        with left_behind(os.environ):
            speculator_of(self).engine_is_up(self.worker.model_runner)
        return done

    wrapper.compile_or_warm_up_model = compile_or_warm_up_model


def _guard_shutdown(wrapper: Any) -> None:
    original = wrapper.shutdown

    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        _, speculator = _held(self)
        if _is_ours(speculator):
            speculator.close()
        return original(self, *args, **kwargs)

    wrapper.shutdown = shutdown


def _held(wrapped: Any) -> tuple[Any, Any]:
    """The model runner and its speculator, None where they do not exist yet or any more.

    `vars`, because the wrapper hands every unknown attribute to its worker, also before it has one.
    """
    runner = getattr(vars(wrapped).get("worker"), "model_runner", None)
    return runner, getattr(runner, "speculator", None)


def _is_ours(speculator: Any) -> bool:
    return bool(getattr(type(speculator), "drafts_remotely", False))
