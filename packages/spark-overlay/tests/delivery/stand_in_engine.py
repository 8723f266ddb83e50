"""Run by the tests beside it, in a process of its own: an engine's start as vLLM makes it, of stand-ins for its parts.

Arguments: the folder to put everything into, and a JSON object: `plugin` (whether it is loaded too), `overlay` (whether
the file has our branch), `method` (None: no speculative configuration), `ours` (whether spark_overlay is "known" in
this process, with its pins changed to the stand-ins, is "there", not imported so far, or is "missing").  Prints a JSON
object with what happened.
"""

import hashlib
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BASE = b'''"""Stand-in for vLLM's own."""


def init_speculator(vllm_config, device, req_states=None):
    return "stock"
'''
FILES = {
    "vllm/__init__.py": '__version__ = "0.32.0"\n',
    "vllm/plugins/__init__.py": "plugins_loaded = True\n",
    "vllm/v1/__init__.py": "",
    "vllm/v1/worker/__init__.py": "",
    "vllm/v1/worker/gpu/__init__.py": "",
    "vllm/v1/worker/gpu/model_runner.py": """
from vllm.v1.worker.gpu.spec_decode import init_speculator

class Runner:
    def __init__(self, config):
        self.speculator = None
        if config.speculative_config is not None:
            self.speculator = init_speculator(config, "cpu", None)
""",
    "vllm/v1/worker/worker_base.py": """
class Worker:
    def compile_or_warm_up_model(self):
        return 0.0

class WorkerWrapperBase:
    def __init__(self, config):
        self.vllm_config = config

    def init_device(self):
        from vllm.v1.worker.gpu.model_runner import Runner

        self.worker = Worker()
        self.worker.model_runner = Runner(self.vllm_config)

    def compile_or_warm_up_model(self):
        return self.worker.compile_or_warm_up_model()

    def shutdown(self):
        pass
""",
    "stand_in_seam.py": """
counts = {"built": 0, "up": 0}

class Remote:
    drafts_remotely = True
    policy_name = "capacity"

    def engine_is_up(self, runner):
        counts["up"] += 1

    def close(self):
        pass

def check_interface():
    pass

def build(config, device, settings, version):
    counts["built"] += 1
    return Remote()
""",
}


def config(method: str | None) -> Any:
    """A configuration that is served where the method is."""
    drafter = SimpleNamespace(
        hf_config=SimpleNamespace(dspark_draft_topk=None),
        architectures=["Qwen3DSparkModel"],
        model="org/drafter",
    )
    speculative = SimpleNamespace(
        method=method, num_speculative_tokens=4, draft_sample_method="greedy",
        rejection_sample_method="standard", draft_model_config=drafter,
    )  # fmt: skip
    return SimpleNamespace(
        speculative_config=None if method is None else speculative,
        use_v2_model_runner=True,
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
        load_config=SimpleNamespace(load_format="auto"),
    )


def prepare(folder: Path, overlay: bool) -> None:
    """The tree, and a seam that knows it."""
    from spark_overlay.delivery.branch import lay_over
    from spark_overlay.vllm_seam import versions

    files = {name: text.encode() for name, text in FILES.items()}
    files["vllm/v1/worker/gpu/spec_decode/__init__.py"] = lay_over(BASE) if overlay else BASE
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    digest = hashlib.sha256(BASE).hexdigest()
    seam = replace(versions.SEAMS["0.32.0"], module="stand_in_seam", base_sha256=digest)
    versions.SEAMS["0.32.0"] = seam


def forget_ours() -> None:
    """As in a process that has imported nothing of ours."""
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("spark_overlay", "ofl", "pydantic")
    ]:
        del sys.modules[name]


def start(wanted: dict[str, Any]) -> dict[str, Any]:
    """What vLLM does in each of its workers, as far as we are concerned."""
    said: dict[str, Any] = {"refused": ""}
    engine = config(wanted["method"])
    try:
        if wanted["plugin"]:
            importlib.import_module("spark_overlay.vllm_seam.plugin").register()
        wrapper = importlib.import_module("vllm.v1.worker.worker_base").WorkerWrapperBase(engine)
        wrapper.init_device()
        wrapper.compile_or_warm_up_model()
        said["speculator"] = type(wrapper.worker.model_runner.speculator).__name__
        wrapper.shutdown()
    except Exception as error:
        said["refused"] = f"{type(error).__name__}: {error}"
    ours = {name for name in sys.modules if name.partition(".")[0] == "spark_overlay"}
    said["ours"] = sorted(ours)
    seam = sys.modules.get("stand_in_seam")
    return said | (seam.counts if seam is not None else {"built": 0, "up": 0})


def count_refusing() -> list[object]:
    """One entry for each time that the guard of `init_device` looks at the configuration."""
    guard = importlib.import_module("spark_overlay.vllm_seam.guard")
    calls: list[object] = []
    original = guard.refuse

    def refuse(config: Any, policy: str) -> None:
        calls.append((config, policy))
        original(config, policy)

    vars(guard)["refuse"] = refuse
    return calls


def main() -> None:
    folder, wanted = Path(sys.argv[1]), json.loads(sys.argv[2])
    prepare(folder, wanted["overlay"])
    sys.path.insert(0, str(folder))
    guarded = count_refusing()
    if wanted["ours"] != "known":
        forget_ours()
    if wanted["ours"] == "missing":
        sys.modules["spark_overlay"] = None  # type: ignore[assignment]
    print(json.dumps(start(wanted) | {"guarded": len(guarded)}))


main()
