"""An engine that was asked for remote tables and did not get them does not start.

Owns the choke point: every engine process builds its worker through vLLM's `WorkerWrapperBase`, whatever the
executor, the model runner or the device.  `compile_or_warm_up_model` is the last thing before an engine serves and
comes after the model is loaded: there, on every rank, the model is looked through, and the readiness record is
written.  `shutdown` ends the readers.
"""

import json
import os
from typing import Any

from ofl.files import publish

from engram_remote.settings import Settings
from engram_remote.vllm_seam.errors import SeamError

MARK = "_engram_remote_settings"
"""Attribute of the wrapper class: what was asked for, and the vLLM's version."""
FORMAT = 1


def guard(wrapper: Any, settings: Settings, version: str) -> None:
    """Wrap the methods of vLLM's WorkerWrapperBase; again on the same class: only the settings are told anew."""
    wrapped = hasattr(wrapper, MARK)
    setattr(wrapper, MARK, (settings, version))
    if wrapped:
        return
    _guard_warm_up(wrapper)
    _guard_shutdown(wrapper)


def check_model(model: Any, *, pipeline: bool) -> list[Any]:
    """The model's remote embeddings.  pipeline: whether other ranks may hold all of its Engram layers.

    Raises SeamError where there is none, or where one of stock's is among its modules.
    """
    from engram_remote.vllm_seam.embedding import RemoteRows

    modules = list(model.modules())
    found = [module for module in modules if isinstance(module, RemoteRows)]
    stock = [
        module
        for module in modules
        if type(module).__name__ == "ParallelEngramEmbedding" and not isinstance(module, RemoteRows)
    ]
    if stock:
        raise SeamError(
            f"VLLM_ENGRAM_REMOTE is set, but {len(stock)} Engram tables of the model are stock's own"
        )
    if not found and not pipeline:
        raise SeamError(
            "VLLM_ENGRAM_REMOTE is set, but the model holds no Engram table that is served remotely"
        )
    return found


def _guard_warm_up(wrapper: Any) -> None:
    original = getattr(wrapper, "compile_or_warm_up_model", None)

    def compile_or_warm_up_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings, version = getattr(self, MARK)
        pipeline = self.vllm_config.parallel_config.pipeline_parallel_size > 1
        found = check_model(_model(self), pipeline=pipeline)
        # Where the wrapper has no such method of its own it hands every unknown name to its worker.
        call = self.worker.compile_or_warm_up_model if original is None else original.__get__(self)
        done = call(*args, **kwargs)
        write_record(settings, version, found)
        return done

    wrapper.compile_or_warm_up_model = compile_or_warm_up_model


def _guard_shutdown(wrapper: Any) -> None:
    original = wrapper.shutdown

    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            # After stock's: no stream waits for a lookup any more.
            from engram_remote.vllm_seam.tables import close_all

            close_all()

    wrapper.shutdown = shutdown


def write_record(settings: Settings, version: str, embeddings: list[Any]) -> None:
    """FILE.RANK of the setting _READY_FILE: readers see none or the whole.  Raises OSError naming the path."""
    if settings.ready_file is None or not embeddings:
        return
    tables = embeddings[0].remote_tables
    reached, wire = tables.reader.connected()
    record = {
        "format": FORMAT,
        "pid": os.getpid(),
        "start_id": settings.start_id,
        "vllm": version,
        "identity": tables.manifest.identity,
        "rank": tables.place.rank,
        "layers": sorted(one.remote_layer for one in embeddings),
        "connected": reached,
        "wire": wire,
    }
    path = settings.ready_file.with_name(f"{settings.ready_file.name}.{tables.place.rank}")
    publish(path, json.dumps(record, indent=1).encode() + b"\n", mode=0o600)


def _model(wrapped: Any) -> Any:
    """The model that a worker has loaded; raises SeamError where there is none.

    `vars`, because the wrapper hands every unknown attribute to its worker, also before it has one.
    """
    runner = getattr(vars(wrapped).get("worker"), "model_runner", None)
    get = getattr(runner, "get_model", None)
    model = get() if get is not None else getattr(runner, "model", None)
    if model is None:
        raise SeamError("VLLM_ENGRAM_REMOTE is set, but this worker holds no model before it warms up")
    return model
