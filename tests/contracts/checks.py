"""What must hold of a release for our seam to fit it: one function a rule, each yielding what is wrong.

A rule that finds nothing to judge says so as a problem.  `CHECKS` names them all.
"""

import ast
from collections.abc import Callable, Iterator

from reads import Read, speculator_reads
from release import RUNNER, SPEC_DECODE, Release
from sources import calls, parameters
from spark_overlay.vllm_seam.versions import SWITCH

IS_DRAFT_MODEL = "isinstance(self.speculator, DraftModelSpeculator)"
IS_DRAFT_MODEL_ALIAS = "isinstance(speculator, DraftModelSpeculator)"
EXCUSED = {
    "prepare_watermarking": "isinstance(self.sampler, GPUWatermarkSampler)",
}
"""Read of any speculator, but only under a condition that holds for no engine that `refusals` lets pass."""

POSITIONAL = {
    "input_batch": ("input_batch",),
    "attn_metadata": ("attn_metadata",),
    "slot_mappings": ("slot_mappings_by_layer",),
    "last_hidden_states": ("spec_hidden_states",),
    "aux_hidden_states": ("aux_hidden_states",),
    "num_sampled": ("num_sampled",),
    "num_rejected": ("num_rejected",),
    "last_sampled": ("self.req_states.last_sampled_tokens",),
    "next_prefill_tokens": ("self.req_states.next_prefill_tokens",),
    "temperature": ("self.sampler.sampling_states.temperature.gpu",),
    "seeds": ("self.sampler.sampling_states.seeds.gpu",),
}
"""`propose`'s parameters that the runner passes by position, in order, and what it passes there."""

Check = Callable[[Release], Iterator[str]]


def base_file(release: Release) -> Iterator[str]:
    """The file whose function is replaced is byte for byte the one that the seam was written against."""
    found = release.base_file_sha256()
    if found != release.seam.base_sha256:
        yield f"the base file's sha256 is {found}, not {release.seam.base_sha256}"
    if SWITCH in release.sources.module(release.seam.base_package).path.read_bytes():
        yield "the base file reads the overlay's switch itself"


def init_speculator(release: Release) -> Iterator[str]:
    """Only the model runner imports `init_speculator`, by name, and its call fits our function."""
    importers = [
        name
        for name in release.sources.names("vllm.v1.worker")
        if release.sources.module(name).imports.get("init_speculator") == (SPEC_DECODE, "init_speculator")
    ]
    if importers != [RUNNER]:
        yield f"init_speculator is imported by {importers}, not by {RUNNER} alone"
    ours = _nested(release.sources.module("spark_overlay.vllm_seam.install").tree, "init_speculator")
    theirs = release.sources.module(SPEC_DECODE).function("init_speculator")
    found = [call for method in release.runner_methods for call in calls(method, "init_speculator")]
    if len(found) != 1:
        yield f"the runner calls init_speculator {len(found)} times"
    for call in found:
        yield from _does_not_fit(call, ours, "our init_speculator")
        yield from _does_not_fit(call, theirs, "vLLM's init_speculator")
    names = parameters(theirs)
    if names != parameters(ours)[: len(names)]:
        yield f"init_speculator takes {names}, ours {parameters(ours)}"


def propose_signature(release: Release) -> Iterator[str]:
    """`propose` has the parameters that our module states, in vLLM's abstract class and in its DSpark one."""
    stated = ast.literal_eval(release.module.constant("PROPOSE_PARAMETERS"))
    for name in ("BaseSpeculator", "DSparkSpeculator"):
        found = parameters(release.theirs(name).method("propose"))
        if found != stated:
            yield f"{name}.propose takes {found}, {release.seam.module} states {stated}"


def propose_calls(release: Release) -> Iterator[str]:
    """The runner calls `propose` once for a dummy run, by name, and once for a step, its tensors by position."""
    theirs = release.theirs("BaseSpeculator").method("propose")
    found = {
        method.name: calls(method, "self.speculator.propose")
        for method in release.runner_methods
        if calls(method, "self.speculator.propose")
    }
    counts = {name: len(some) for name, some in found.items()}
    if counts != {"_dummy_run": 1, "sample_tokens": 1}:
        yield f"propose is called {counts} times by method"
        return
    dummy, real = found["_dummy_run"][0], found["sample_tokens"][0]
    for call in (dummy, real):
        yield from _does_not_fit(call, theirs, "BaseSpeculator.propose")
    if dummy.args or not _is_true(dummy, "dummy_run"):
        yield "a dummy run's proposal is not told by its name dummy_run=True"
    if "is_profile" not in {one.arg for one in dummy.keywords}:
        yield "a dummy run's proposal does not say is_profile"
    passed = tuple(ast.unparse(one) for one in real.args)
    wanted = tuple(text for texts in POSITIONAL.values() for text in texts)
    if passed != wanted:
        yield f"a step's proposal gets {passed}, where {wanted} is expected"
    if parameters(theirs)[: len(POSITIONAL)] != tuple(POSITIONAL):
        yield f"propose's first parameters are {parameters(theirs)[: len(POSITIONAL)]}"
    if {"dummy_run", "is_profile"} & {one.arg for one in real.keywords}:
        yield "a step's proposal says dummy_run or is_profile"


def capacity_attributes(release: Release) -> Iterator[str]:
    """Whatever the runner reads of any speculator, ours of capacity policy has; it is no DraftModelSpeculator."""
    found = _reads(release)
    if len(found) < 8:
        yield f"only {len(found)} reads of the speculator were found in the runner"
    for read in found:
        if {IS_DRAFT_MODEL, IS_DRAFT_MODEL_ALIAS} & set(read.guards) or read.tolerant:
            continue
        excuse = EXCUSED.get(read.name)
        if excuse in read.guards or release.remote_only.has(read.name):
            continue
        yield f"line {read.line} of the runner reads speculator.{read.name}, which capacity's class lacks"
    if any(one.node.name == "DraftModelSpeculator" for one in release.remote_only.line):
        yield "capacity's class is a DraftModelSpeculator: the runner would load a draft model for it"
    if not any(one.node.name == "BaseSpeculator" for one in release.remote_only.line):
        yield "capacity's class is no BaseSpeculator"


def local_attributes(release: Release) -> Iterator[str]:
    """Whatever the runner reads of any speculator, of a DraftModelSpeculator too, the other policies' class has."""
    for read in _reads(release):
        if not read.tolerant and not release.remote_and_local.has(read.name):
            yield f"line {read.line} of the runner reads speculator.{read.name}, which the local class lacks"
    names = [one.node.name for one in release.remote_and_local.line]
    for needed in ("DSparkSpeculator", "DFlashSpeculator", "DraftModelSpeculator", "BaseSpeculator"):
        if needed not in names:
            yield f"the local class is no {needed}"


def abstract_methods(release: Release) -> Iterator[str]:
    """Capacity's class defines every abstract method before vLLM's abstract class comes in its line."""
    line = release.remote_only.line
    abstract = {
        node.name
        for node in release.theirs("BaseSpeculator").node.body
        if isinstance(node, ast.FunctionDef)
        and any("abstractmethod" in ast.unparse(one) for one in node.decorator_list)
    }
    if "propose" not in abstract:
        yield "BaseSpeculator.propose is not abstract"
    before: set[str] = set()
    for one in line:
        if one.node.name == "BaseSpeculator":
            break
        before |= {node.name for node in one.node.body if isinstance(node, ast.FunctionDef)}
    if missing := abstract - before:
        yield f"capacity's class lacks {sorted(missing)}"


def keeping_context(release: Release) -> Iterator[str]:
    """A step's context can be stored without drafts, in the way that the version's class chooses."""
    theirs = release.theirs("DSparkSpeculator").method("propose")
    own = [node.name for node in release.remote_and_local.node.body if isinstance(node, ast.FunctionDef)]
    if "_keep_context" in own:
        yield from _skips_the_query_pass_itself(theirs)
        return
    if "num_speculative_tokens == 0" in ast.unparse(theirs):
        yield "propose stores the context alone where no tokens are asked for, and the seam does not use that"
    uses = [node for node in ast.walk(theirs) if isinstance(node, ast.Name) and node.id == "is_profile"]
    eager = [
        one
        for call in calls(theirs, "dispatch_cg_and_sync_dp")
        for one in call.keywords
        if one.arg == "need_eager" and ast.unparse(one.value) == "is_profile"
    ]
    if len(uses) != 1 or len(eager) != 1:
        yield f"is_profile is used {len(uses)} times in propose, {len(eager)} of them as need_eager"
    drafting = calls(theirs, "self._generate_draft")
    if not drafting:
        yield "propose does not draft through _generate_draft"
        return
    stored = [
        call.lineno
        for name in ("self.model.precompute_and_store_context_kv", "self._precompute_context_kv")
        for call in calls(theirs, name)
    ]
    if not any(drafting[0].lineno < line < drafting[-1].lineno for line in stored):
        yield "propose does not store the context's K/V before it drafts"
    release.theirs("DSparkSpeculator").method("_generate_draft")


def choke_point(release: Release) -> Iterator[str]:
    """The wrapper that the guard wraps has the methods and attributes that it wraps and reads."""
    wrapper, base = release.theirs("WorkerWrapperBase"), release.theirs("WorkerBase")
    for name, wanted in (("init_device", ()), ("shutdown", ())):
        found = parameters(wrapper.method(name))
        if found != wanted:
            yield f"WorkerWrapperBase.{name} takes {found}"
    own = [node.name for node in wrapper.node.body if isinstance(node, ast.FunctionDef)]
    if "compile_or_warm_up_model" not in own and "__getattr__" not in own:
        yield "WorkerWrapperBase neither has compile_or_warm_up_model nor hands names on to its worker"
    if not base.has("compile_or_warm_up_model"):
        yield "WorkerBase has no compile_or_warm_up_model"
    for name in ("worker", "vllm_config"):
        if not wrapper.has(name):
            yield f"WorkerWrapperBase sets no {name}"
    starting = wrapper.method("init_worker")
    loading = calls(starting, "load_general_plugins")
    if len(loading) != 1:
        yield f"init_worker loads general plugins {len(loading)} times"
    elif any(call.lineno < loading[0].lineno for call in calls(starting, "worker_class")):
        yield "a worker is made before plugins are loaded"
    plugins = release.sources.module("vllm.plugins")
    plugins.constant("plugins_loaded")
    loader = ast.unparse(plugins.function("load_general_plugins"))
    if "global plugins_loaded" not in loader or "vllm.general_plugins" not in ast.unparse(plugins.tree):
        yield "general plugins are loaded otherwise than once through plugins_loaded"


def request_states(release: Release) -> Iterator[str]:
    """What counts additions finds `add_request`, called with the request's name first, and the slots by name."""
    states = release.theirs("RequestState")
    if parameters(states.method("add_request"))[:1] != ("req_id",):
        yield f"add_request takes {parameters(states.method('add_request'))}"
    if not states.has("req_id_to_index"):
        yield "RequestState has no req_id_to_index"
    adding = [
        call for method in release.runner_methods for call in calls(method, "self.req_states.add_request")
    ]
    if not adding:
        yield "the runner adds no requests through req_states.add_request"
    for call in adding:
        if not call.args and "req_id" not in {one.arg for one in call.keywords}:
            yield "add_request is called without a name"


def _reads(release: Release) -> list[Read]:
    return [read for method in release.runner_methods for read in speculator_reads(method)]


def _skips_the_query_pass_itself(propose: ast.AST) -> Iterator[str]:
    branches = [
        node
        for node in ast.walk(propose)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "num_speculative_tokens == 0"
    ]
    if len(branches) != 1:
        yield f"propose asks {len(branches)} times whether no tokens are wanted"
        return
    inside = ast.Module(body=branches[0].body, type_ignores=[])
    if not isinstance(branches[0].body[-1], ast.Return):
        yield "propose goes on where no tokens are wanted"
    if not calls(inside, "self._precompute_context_kv"):
        yield "propose does not store the context's K/V where no tokens are wanted"
    if calls(inside, "self._generate_draft"):
        yield "propose drafts where no tokens are wanted"


def _does_not_fit(
    call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, what: str
) -> Iterator[str]:
    """Why a call's arguments cannot be bound to a function's parameters."""
    names = parameters(function)
    by_name = {one.arg for one in call.keywords}
    if len(call.args) > len(names):
        yield f"{what} takes {len(names)} arguments, not {len(call.args)}"
    if unknown := by_name - set(names):
        yield f"{what} has no parameters {sorted(map(str, unknown))}"
    if twice := by_name & set(names[: len(call.args)]):
        yield f"{what} gets {sorted(map(str, twice))} twice"
    required = names[: len(names) - len(function.args.defaults)]
    if missing := set(required[len(call.args) :]) - by_name:
        yield f"{what} does not get {sorted(missing)}"


def _nested(tree: ast.AST, name: str) -> ast.FunctionDef:
    [found] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found


def _is_true(call: ast.Call, name: str) -> bool:
    return any(
        one.arg == name and isinstance(one.value, ast.Constant) and one.value.value is True
        for one in call.keywords
    )
