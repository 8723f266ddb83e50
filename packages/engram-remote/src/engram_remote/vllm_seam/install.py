"""Binding the remote tables into one process of an engine.

Owns the order: settings, version, sources, guard, rebinding.  Imported only when remote tables were asked for.  May run
any number of times in a process: each step is done once, or done again to the same effect.
"""

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from engram_remote.settings import Settings
from engram_remote.vllm_seam.guard import guard
from engram_remote.vllm_seam.versions import Seam, check_sources, seam_for

NAME = "ParallelEngramEmbedding"
STOCK = "_engram_remote_stock"
"""Attribute of stock's module: the class that was there before."""


def install(environ: Mapping[str, str]) -> None:
    """Make this process's models read their Engram rows remotely.

    Raises SettingsError on a setting that cannot be served and SeamError on an engine that cannot be bound.
    """
    settings = Settings.from_environ(environ)
    if settings is None:
        return
    settings.check_files()
    version = _vllm_version()
    seam = seam_for(version)
    check_sources(seam, version)
    _share_the_engines_log()
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    rebind(seam, settings)
    guard(WorkerWrapperBase, settings, version)


def rebind(seam: Seam, settings: Settings) -> type:
    """Put our class where stock's `Engram` finds the one that it constructs; returns it.

    `Engram._create_embedding` reads the name from its module at each call, so models that are built later get ours
    also where the module was imported before.
    """
    from engram_remote.vllm_seam.embedding import remote_class

    module: Any = importlib.import_module(seam.module)
    stock = getattr(module, STOCK, None) or getattr(module, NAME)
    ours = remote_class(stock, settings)
    setattr(module, STOCK, stock)
    setattr(module, NAME, ours)
    return ours


def _vllm_version() -> str:
    import vllm

    return str(vllm.__version__)


def _share_the_engines_log() -> None:
    """vLLM sets up a log for its own names only, now or later; as their child ours follow whatever it sets up."""
    logging.getLogger("engram_remote").parent = logging.getLogger("vllm")
