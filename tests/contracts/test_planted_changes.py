"""The checks check: what vLLM, or our seam, might change is seen by the checks that it concerns and by no other."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from every_check import CHECKS
from release import Release

FOLDER = Path(os.environ["VLLM_RELEASES"]).resolve()
RUNNER = "vllm/v1/worker/gpu/model_runner.py"
SPEC_DECODE = "vllm/v1/worker/gpu/spec_decode/__init__.py"
SPECULATOR = "vllm/v1/worker/gpu/spec_decode/speculator.py"
DFLASH = "vllm/v1/worker/gpu/spec_decode/dflash/speculator.py"
ADAPTIVE = "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py"
WORKER_BASE = "vllm/v1/worker/worker_base.py"
SPECULATIVE, PARALLEL = "vllm/config/speculative.py", "vllm/config/parallel.py"
STATES, BATCH = "vllm/v1/worker/gpu/states.py", "vllm/v1/worker/gpu/input_batch.py"
SEAM = "spark_overlay/vllm_seam"
ABSTRACT = "    @abstractmethod\n    def capture(self)"


@dataclass(frozen=True)
class Plant:
    """One change: `old` becomes `new`, wherever it stands in the file.  caught: the checks that must see it."""

    what: str
    file: str
    old: str
    new: str
    caught: tuple[str, ...]
    version: str = "0.33.0"


PLANTS = (
    Plant("a word more in the base file", SPEC_DECODE, "import torch\n", "import torch  # !\n", ("base_file",)),
    Plant(
        "a base file that binds a remote drafter itself",
        SPEC_DECODE,
        "import torch\n",
        "import torch\nREMOTE = 'VLLM_DSPARK_REMOTE'\n",
        ("base_file",),
    ),
    Plant(
        "an argument more for init_speculator",
        SPEC_DECODE,
        "def init_speculator(",
        "def init_speculator(rank: int, ",
        ("base_file", "init_speculator"),
    ),
    Plant(
        "a runner that reaches init_speculator otherwise",
        RUNNER,
        "from vllm.v1.worker.gpu.spec_decode import init_speculator",
        "from vllm.v1.worker.gpu.spec_decode.factory import init_speculator",
        ("init_speculator",),
    ),
    Plant(
        "a renamed parameter of propose",
        SPECULATOR,
        "num_rejected: torch.Tensor",
        "num_refused: torch.Tensor",
        ("propose_signature", "propose_calls"),
    ),
    Plant(
        "a renamed parameter of DSpark's propose alone",
        DFLASH,
        "num_rejected: torch.Tensor,\n        # [max_num_reqs]",
        "num_refused: torch.Tensor,\n        # [max_num_reqs]",
        ("propose_signature",),
    ),
    Plant(
        "two arguments of a step's proposal the other way round",
        RUNNER,
        "aux_hidden_states,\n                    num_sampled,\n                    num_rejected,",
        "aux_hidden_states,\n                    num_rejected,\n                    num_sampled,",
        ("propose_calls",),
    ),
    Plant("another word for a dummy run", RUNNER, "dummy_run=True,\n                    skip", "skip",
          ("propose_calls",)),
    Plant(
        "an attribute more that the runner reads of any speculator",
        RUNNER,
        "if self.speculator.supports_mm_inputs:",
        "if self.speculator.supports_mm_inputs and self.speculator.wants_embeddings:",
        ("capacity_attributes", "local_attributes"),
    ),
    Plant(
        "an attribute read under another condition than the one that is refused",
        RUNNER,
        "if isinstance(self.sampler, GPUWatermarkSampler):\n                self.speculator",
        "if self.num_speculative_steps:\n                self.speculator",
        ("capacity_attributes",),
    ),
    Plant(
        "an attribute more that the runner reads of a draft model's speculator",
        RUNNER,
        "self.speculator.dcp_size == 1",
        "self.speculator.tree_width == 1",
        ("local_attributes",),
    ),
    Plant(
        "an abstract method more",
        SPECULATOR,
        ABSTRACT,
        f"    @abstractmethod\n    def warm_up(self) -> None:\n        pass\n\n{ABSTRACT}",
        ("abstract_methods",),
    ),
    Plant(
        "no proposal any more that only keeps the context",
        DFLASH,
        "if num_speculative_tokens == 0:",
        "if num_speculative_tokens == -1:",
        ("keeping_context",),
    ),
    Plant(
        "a proposal without drafts that keeps no context",
        DFLASH,
        "self._precompute_context_kv(0, num_target_tokens, dummy_run)\n            return",
        "return",
        ("keeping_context",),
    ),
    Plant("a profiling run that stores no context", DFLASH, "need_eager=is_profile,", "need_eager=dummy_run,",
          ("keeping_context",), "0.32.0"),
    Plant(
        "a profiling run that ends early",
        DFLASH,
        "        batch_sync, num_batch_tokens = (",
        "        if is_profile:\n            return self.draft_tokens\n        batch_sync, num_batch_tokens = (",
        ("keeping_context",),
        "0.30.0",
    ),
    Plant("a worker wrapper that starts its device otherwise", WORKER_BASE, "def init_device(self)",
          "def start_device(self)", ("choke_point",)),
    Plant("plugins loaded after the worker", WORKER_BASE, "        load_general_plugins()\n", "",
          ("choke_point",)),
    Plant("another note of loaded plugins", "vllm/plugins/__init__.py", "plugins_loaded", "are_loaded",
          ("choke_point",)),
    Plant("slots by another name", STATES, "req_id_to_index", "slot_of", ("request_states", "configuration")),
    Plant("no draft counts in a batch", BATCH, "num_draft_tokens_per_req", "draft_counts", ("configuration",)),
    Plant("a refused setting by another name", SPECULATIVE, "draft_sample_method", "draft_sampling",
          ("configuration",)),
    Plant("a tolerated setting by another name", SPECULATIVE, "enable_adaptive_verification",
          "adaptive_verification", ("configuration",)),
    Plant("costs by another name", ADAPTIVE, "draft_cost_ms, verify_cost_ms = self.cost_tables",
          "verify_cost_ms, draft_cost_ms = self.cost_tables", ("adaptive_verification",)),
    Plant("confidences in another order", ADAPTIVE, "self._confidence_probs[input_batch.idx_mapping]",
          "self._confidence_probs[:num_reqs]", ("adaptive_verification",)),
    Plant("a refused parallelism by another name", PARALLEL, "prefill_context_parallel_size",
          "prefill_context_ranks", ("parallel_sizes",)),
    Plant(
        "a new kind of parallelism",
        PARALLEL,
        "    tensor_parallel_size: int",
        "    expert_slice_parallel_size: int = 1\n    tensor_parallel_size: int",
        ("parallel_sizes",),
    ),
    Plant("a seam that states another order", f"{SEAM}/v0_30.py", '"num_sampled", "num_rejected"',
          '"num_rejected", "num_sampled"', ("propose_signature",), "0.30.0"),
    Plant("a seam whose speculator has no model", f"{SEAM}/v0_26.py", "self.model =", "model =",
          ("capacity_attributes",), "0.26.0"),
    Plant("a seam whose speculator says nothing of embeddings", f"{SEAM}/speculators.py",
          "supports_mm_inputs = False", "mm_inputs = False", ("capacity_attributes",)),
    Plant("a seam that drafts to keep the context", f"{SEAM}/v0_33.py", "def _keep_context",
          "def _keep", ("keeping_context",)),
    Plant("a seam that forgets a parallelism", f"{SEAM}/refusals.py", '    "data_parallel_size",\n', "",
          ("parallel_sizes",)),
)  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[Plant], Release]:
    """The release with one file changed."""

    def plant(change: Plant) -> Release:
        release = Release(change.version, FOLDER / change.version)
        name = change.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        text = release.sources.module(name).path.read_text(encoding="utf-8")
        assert change.old in text, "there is no such place: the plant says nothing"
        path = tmp_path / change.file
        path.parent.mkdir(parents=True)
        path.write_text(text.replace(change.old, change.new), encoding="utf-8")
        return Release(change.version, release.folder, (tmp_path,))

    return plant


def seen_by(release: Release) -> set[str]:
    """The checks that find something; what is not where a check looks for it counts."""
    found = set()
    for name, check in CHECKS.items():
        try:
            problems = list(check(release))
        except LookupError as error:
            problems = [str(error)]
        if problems:
            found.add(name)
    return found


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.what.replace(" ", "-"))
def test_a_planted_change_is_seen_by_the_checks_that_it_concerns_and_no_other(
    planted: Callable[[Plant], Release], plant: Plant
) -> None:
    assert seen_by(planted(plant)) == set(plant.caught)


def test_every_check_has_a_plant_that_it_sees() -> None:
    assert {name for plant in PLANTS for name in plant.caught} == set(CHECKS)
