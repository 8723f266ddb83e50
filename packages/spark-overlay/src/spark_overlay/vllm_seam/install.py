"""Binding the remote drafter into one process of an engine.

Owns the order: settings, version, guard, rebinding.  Imported only when the drafter was asked for.  May run
any number of times in a process: each step is done once, or done again to the same effect.
"""

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.depth import check_version, prepare
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.guard import guard
from spark_overlay.vllm_seam.refusals import refuse
from spark_overlay.vllm_seam.versions import Seam, check_base_file, seam_for

MODEL_RUNNER = "vllm.v1.worker.gpu.model_runner"
"""Imports `init_speculator` by name, so where it is loaded already its copy of the name is rebound too."""


def install(environ: Mapping[str, str]) -> None:
    """Make this process's engines draft remotely.

    Raises SettingsError on a setting that cannot be served and SeamError on an engine that cannot be bound.
    """
    settings = Settings.from_environ(environ)
    if settings is None:
        return
    settings.check_files()
    version = _vllm_version()
    seam = seam_for(version)
    check_base_file(seam, version, _base_file(seam))
    _share_the_engines_log()
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    guard(WorkerWrapperBase, settings.policy, lambda config: prepare(config, settings, os.environ))
    rebind(seam, settings, version)


def rebind(seam: Seam, settings: Settings, version: str) -> None:
    """Put our `init_speculator` where the model runner finds it."""
    ours = _init_speculator(seam, settings, version)
    for name in (seam.base_package, MODEL_RUNNER):
        module = importlib.import_module(name) if name == seam.base_package else sys.modules.get(name)
        if module is not None:
            module.init_speculator = ours  # type: ignore[attr-defined]


def _init_speculator(seam: Seam, settings: Settings, version: str) -> Callable[..., Any]:
    def init_speculator(vllm_config: Any, device: Any, req_states: Any = None) -> Any:
        """vLLM's own function would choose by method; the guard and `refuse` leave only one to choose.

        req_states: passed by some versions only, and not needed before the engine is up.
        """
        refuse(vllm_config, settings.policy)
        check_version(vllm_config, version, known=seam.adaptive)
        prepare(vllm_config, settings, os.environ)
        module = importlib.import_module(seam.module)
        module.check_interface()
        return module.build(vllm_config, device, settings, version)

    return init_speculator


def _vllm_version() -> str:
    import vllm

    return str(vllm.__version__)


def _base_file(seam: Seam) -> Path:
    try:
        found = importlib.util.find_spec(seam.base_package)
    except ModuleNotFoundError as error:
        # Of a missing package there is no spec, but a missing parent raises; so does what a parent imports in vain,
        # which is another failure and keeps its own words.
        if not f"{seam.base_package}.".startswith(f"{error.name}."):
            raise
        found = None
    if found is None or found.origin is None:
        raise SeamError(f"this vLLM has no package {seam.base_package}")
    return Path(found.origin)


def _share_the_engines_log() -> None:
    """vLLM sets up a log for its own names only, now or later; as their child ours follow whatever it sets up."""
    logging.getLogger("spark_overlay").parent = logging.getLogger("vllm")
