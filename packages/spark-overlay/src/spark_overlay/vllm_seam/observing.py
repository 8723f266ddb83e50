"""Observation of a vLLM engine: the hooks of `spark_overlay.observe` on one process's objects.

Owns where they go on: at the last thing before an engine serves, on the built model runner's speculator, ours or
vLLM's own.  Imported only where observation was asked for.  Must never change what a call gets or returns.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import spark_overlay
from spark_overlay.observe.observer import Observer, draw_start_id
from spark_overlay.observe.settings import OBSERVE, ObserveSettings
from spark_overlay.observe.watch import StepRequest, Use
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.depth import ADAPTIVE, is_adaptive
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.guard import MARK as GUARDED
from spark_overlay.vllm_seam.ranks import ranks_of
from spark_overlay.vllm_seam.versions import public_version, seam_for

MARK = "_spark_overlay_observed"
"""Attribute of the wrapper class: it is wrapped already."""
HELD = "_spark_overlay_observer"
"""Attribute of a wrapper: its rank's observer."""


def observe_engines(environ: Mapping[str, str]) -> None:
    """Have this process's engines observed.  Before the guard, whose wrappers then come around these.

    Raises SettingsError, and SeamError on a vLLM that is not supported.
    """
    settings = ObserveSettings.from_environ(environ)
    if settings is None:
        return
    import vllm
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    seam_for(str(vllm.__version__))
    wrap(WorkerWrapperBase, settings, Settings.from_environ(environ), str(vllm.__version__))


def wrap(wrapper: Any, settings: ObserveSettings, remote: Settings | None, version: str) -> None:
    """Wrap two methods of vLLM's WorkerWrapperBase; once.  remote: the drafter's settings, where it drafts remotely."""
    if hasattr(wrapper, MARK):
        return
    if hasattr(wrapper, GUARDED):
        raise SeamError(f"{OBSERVE} must be set before the process's first engine drafts remotely")
    setattr(wrapper, MARK, True)
    warm_up, shutdown = getattr(wrapper, "compile_or_warm_up_model", None), wrapper.shutdown

    def compile_or_warm_up_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Where the wrapper has no such method of its own it hands every unknown name to its worker.
        call = self.worker.compile_or_warm_up_model if warm_up is None else warm_up.__get__(self)
        done = call(*args, **kwargs)
        vars(self)[HELD] = attach(self.worker.model_runner, settings, remote, version)
        return done

    def observed_shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = vars(self).get(HELD)
        if observer is not None:
            observer.close()
        return shutdown(self, *args, **kwargs)

    wrapper.compile_or_warm_up_model, wrapper.shutdown = compile_or_warm_up_model, observed_shutdown


def attach(runner: Any, settings: ObserveSettings, remote: Settings | None, version: str) -> Observer:
    """Hooks on a model runner that is about to serve.  Raises SeamError on one that adapts its verification.

    The start's name is rank 0's, told to all: so the files of one engine name one start, and those of an engine that
    was started again in the same environment name another.
    """
    if is_adaptive(runner.speculative_config):
        raise SeamError(
            f"{OBSERVE} is set and {ADAPTIVE}: the device alone then knows which drafts a step verifies"
        )
    from spark_overlay.vllm_seam.observed_facts import Named, read_facts

    ranks = ranks_of(runner.vllm_config)
    named = Named(
        start_id=ranks.gather(draw_start_id())[0],
        arm=settings.arm,
        rank=ranks.rank,
        ranks=ranks.size,
        engine_version=public_version(version),
        overlay_version=spark_overlay.__version__,
        policy="" if remote is None else remote.policy,
        transport="" if remote is None else remote.endpoint.partition(":")[0],
    )
    use = Use() if remote is None else Use(remote.policy, remote.shadow_use)
    observer = Observer(settings, read_facts(runner, named), use, runner.req_states)
    if runner.speculator is not None:
        rounds = None if remote is None else runner.speculator.policy.rounds
        if rounds is not None and rounds.lead is not None:
            observer.attach(rounds.lead.drafter, runner.vllm_config.model_config.max_model_len)
        hook(runner.speculator, observer, rounds, prefill_lengths(runner.req_states))
    return observer


def prefill_lengths(request_states: Any) -> Sequence[int] | None:
    """By slot, the tokens that a request was added with; None where this version does not keep them so."""
    lengths: Sequence[int] | None = getattr(getattr(request_states, "prefill_len", None), "np", None)
    return lengths


def hook(speculator: Any, observer: Observer, rounds: Any, prefill: Sequence[int] | None) -> None:
    """Observe a speculator's real steps.  rounds: of a remote one, None of vLLM's own.  prefill: lengths by slot."""
    original = speculator.propose
    names = getattr(speculator, "propose_parameters", None) or tuple(inspect.signature(original).parameters)

    def propose(*args: Any, **kwargs: Any) -> Any:
        call = dict(zip(names, args, strict=False)) | kwargs
        if call.get("dummy_run") or call.get("is_profile"):
            return original(*args, **kwargs)
        observer.begin(lambda: step_requests(call, prefill))
        try:
            drafts = original(*args, **kwargs)
        finally:
            if rounds is not None:
                observer.decided(rounds.words.read)
        observer.end(drafts[: call["input_batch"].num_reqs].tolist)
        return drafts

    speculator.propose = propose


def step_requests(call: Mapping[str, Any], prefill: Sequence[int] | None = None) -> Sequence[StepRequest]:
    """The step of a call of `propose`, copied to the host.  call: its arguments by name.

    No supported target trims rows, so of each request all scheduled ones are kept.
    """
    batch = call["input_batch"]
    count = batch.num_reqs
    firsts = batch.query_start_loc_np[: count + 1].tolist()
    verified = batch.num_draft_tokens_per_req
    slots = batch.idx_mapping_np[:count].tolist()
    sampled, rejected = (call[name][:count].tolist() for name in ("num_sampled", "num_rejected"))
    positions = batch.positions[firsts[:-1]].tolist()
    ends = [start + after - first for start, first, after in zip(positions, firsts, firsts[1:], strict=False)]
    anchors = call["last_sampled"][slots, 0].tolist()
    return [
        StepRequest(
            name=batch.req_ids[index],
            slot=slots[index],
            start=positions[index],
            q=firsts[index + 1] - firsts[index],
            kept=firsts[index + 1] - firsts[index],
            sampled=sampled[index],
            rejected=rejected[index],
            verified=0 if verified is None else int(verified[index]),
            anchor=anchors[index],
            remaining=-1 if prefill is None else max(0, int(prefill[slots[index]]) - ends[index]),
        )
        for index in range(count)
    ]
