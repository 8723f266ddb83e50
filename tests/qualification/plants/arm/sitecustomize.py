"""Defects in product code, for tests: one a check, chosen by the variable PLANT.

Python imports this module at its start, in every process of an arm, from the folder that the test's platform puts first
on its path.  A patch is put on a module when that module has been imported.  Nothing of the observer is touched.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]


def zero_rows(framing: Any) -> None:
    """Rows that are sent are zeros: trimmed ones, as it were."""
    whole = framing.FrameBuilder._row_bytes
    framing.FrameBuilder._row_bytes = lambda self, piece: memoryview(bytes(len(whole(self, piece).cast("B"))))


def rows_lost_far_out(framing: Any) -> None:
    """From position 200 on, rows are zeros: the context of a long prompt is lost, and nothing else."""
    whole = framing.FrameBuilder._row_bytes

    def planted(self: Any, piece: Any) -> memoryview:
        rows: memoryview = whole(self, piece)
        return memoryview(bytes(len(rows.cast("B")))) if piece.first >= 200 else rows

    framing.FrameBuilder._row_bytes = planted


def wrong_anchor(framing: Any) -> None:
    """The worker is told another anchor than the target sampled."""
    whole = framing.FrameBuilder._entry

    def planted(self: Any, piece: Any, last: bool) -> Any:
        entry = whole(self, piece, last)
        return replace(entry, anchor=entry.anchor ^ 1) if entry.n_out else entry

    framing.FrameBuilder._entry = planted


def takes_late_replies(driver: Any) -> None:
    """A call whose deadline passed stays open, and its reply is taken for that of whatever round it comes in."""
    whole = driver.RoundDriver._exchange

    def planted(self: Any, session: Any, frames: Any, deadline_ns: int) -> Any:
        transport = session.transport
        held: list[int] = vars(transport).setdefault("held", [])
        given_up: list[int] = []
        transport.cancel = given_up.append
        if held and frames[-1].awaited:
            with contextlib.suppress(driver.DeadlineError):
                body = transport.wait(held[0], deadline_ns=driver.NO_WAIT_NS)
                held.clear()
                for frame in frames:
                    transport.submit(frame.parts, deadline_ns=deadline_ns)
                return self._core.finish(body)
        try:
            return whole(self, session, frames, deadline_ns)
        except driver.DeadlineError:
            held += given_up[-1:]
            raise

    driver.RoundDriver._exchange = planted


def any_generation(core: Any) -> None:
    """A reply is believed whatever generation, epoch and round it names."""
    from ofl.contract.dspark_v1 import Envelope, Kind, peek, rules

    rules.check_step_reply = lambda reply, request, shape: None
    decode = core.decode_reply

    def planted(data: Any, envelope: Any, request: Any, shape: Any = None) -> Any:
        head = peek(data, Kind.REPLY)
        reply = decode(data, Envelope(envelope.op, head.epoch, head.round), request, shape)
        if hasattr(reply, "entries"):
            pairs = zip(reply.entries, request.entries, strict=True)
            entries = tuple(replace(got, generation=sent.generation) for got, sent in pairs)
            reply = replace(reply, entries=entries)
        return reply

    core.decode_reply = planted


def other_drafts_leave(module: Any) -> None:
    """What leaves `propose` is not what was decided on."""
    owner, name = (module.Capacity, "drafts") if hasattr(module, "Capacity") else (module.Rank, "propose")
    whole = getattr(owner, name)

    def planted(self: Any, step: Any, *more: Any) -> Any:
        drafts = whole(self, step, *more)
        return drafts if getattr(self, "local", None) else (drafts + 1) * (drafts != 0)

    setattr(owner, name, planted)


def ranks_part(policies: Any) -> None:
    """Rank 1 verifies other drafts than rank 0."""
    whole = policies.RemoteRounds.remote

    def planted(self: Any, n_requests: int) -> Any:
        drafts = whole(self, n_requests)
        return drafts if self.lead is not None else drafts.copy_((drafts + 1) * (drafts != 0))

    policies.RemoteRounds.remote = planted


def positions_slip(target: Any) -> None:
    """The simulated engine says that a decoded token's rows begin one place before they do."""
    whole = target.SimulatedTarget.run

    def planted(self: Any, scheduled: Any, wanted: int) -> Any:
        step = whole(self, scheduled, wanted)
        entries = [
            replace(entry, first_position=entry.first_position - 1) if entry.n_drafts else entry
            for entry in step.entries
        ]
        return replace(step, entries=entries)

    target.SimulatedTarget.run = planted


def accepts_all(target: Any) -> None:
    """The simulated target takes whatever was drafted for what it would have said."""

    def planted(self: Any, scheduled: Any) -> int:
        request, model = scheduled.request, self._model
        for draft in request.drafts[: scheduled.n_drafts]:
            request.say(draft, model)
        request.say(model.choose(request.path[-1]), model)
        return int(scheduled.n_drafts)

    target.SimulatedTarget._verify = planted


def overwrites_tokens(step: Any) -> None:
    """Reading the anchors changes them in the engine: it goes on from other tokens than it sampled."""
    whole = step.Lead.round

    def planted(self: Any, engine_step: Any) -> Any:
        led = whole(self, engine_step)
        tokens = engine_step.inputs.last_sampled
        tokens.copy_((tokens + 1) % 400)
        return led

    step.Lead.round = planted


def server_is_a_row_off(load: Any) -> None:
    """A table server gives the row before the one that was asked for."""
    whole = load.LoadedTable.rows.fget

    def planted(self: Any) -> int:
        shard = self.shard
        row_bytes = (shard.bytes - load.HEADER_BYTES) // (shard.row_end - shard.row_start)
        return int(whole(self) - row_bytes)

    load.LoadedTable.rows = property(planted)


def fallback_is_a_row_off(client: Any) -> None:
    """Where a server does not answer, values are those of the neighbouring row."""
    import numpy

    whole, whole_staging = client.Client.wait, client.Client.staging
    made: dict[tuple[int, int], Any] = {}

    def staging_is_known(self: Any, *arguments: Any, **named: Any) -> Any:
        one = whole_staging(self, *arguments, **named)
        made[id(self), one.number] = one
        return one

    def planted(self: Any, ticket: int, deadline_ns: int | None = None) -> Any:
        staging = next((number for number, (one, _) in self._pending.items() if one == ticket), None)
        result = whole(self, ticket, deadline_ns)
        if result.outcome == "local" and self.options.endpoint is not None and staging is not None:
            values, _ = made[id(self), staging].planes([result.rows])[0]
            values[:] = numpy.roll(values, 1, axis=0)
        return result

    client.Client.wait, client.Client.staging = planted, staging_is_known


def any_identity(abi: Any) -> None:
    """Client and server name the same identity, whatever their tables are."""
    for options in (abi.ClientOptions, abi.ServerOptions):
        whole = options.__init__

        def planted(self: Any, *, identity: Any, whole: Any = whole, **named: Any) -> None:
            whole(self, identity=type(identity)(), **named)

        options.__init__ = planted


Planted = tuple[tuple[str, Patch], ...]
"""Modules and their patches."""
FRAMING, CORE, POLICIES = (
    "spark_overlay.round.framing",
    "spark_overlay.round.core",
    "spark_overlay.vllm_seam.policies",
)
TARGET = "spark_overlay.simulation.target"
SIMULATOR: dict[str, Planted] = {
    "rank_q_kept_position_valid_anchor_owner_agreement": ((TARGET, positions_slip),),
    "no_local_drafter": (("spark_overlay.simulation.ranks", other_drafts_leave),),
    "greedy_text_equals_target_only": ((TARGET, accepts_all),),
    "table_rows_exact_and_fallback": (("engram_remote.server.load", server_is_a_row_off),),
    "table_rows_exact_and_fallback fallback_exact": (("engram_remote.client", fallback_is_a_row_off),),
    "table_rows_exact_and_fallback manifest_bound": (("engram_remote.abi", any_identity),),
}
VLLM: dict[str, Planted] = {
    "rank_q_kept_position_valid_anchor_owner_agreement": ((POLICIES, ranks_part),),
    "no_local_drafter": ((POLICIES, other_drafts_leave),),
    "greedy_text_equals_target_only": (("spark_overlay.vllm_seam.step", overwrites_tokens),),
}
BOTH: dict[str, Planted] = {
    "final_need_draft_real_complete": ((FRAMING, zero_rows),),
    "step_generation_echo_and_uniform_broadcast": ((CORE, any_generation),),
    "disconnect_before_after_final_watchdog_late_reply": (
        ("spark_overlay.driver", takes_late_replies),
        (CORE, any_generation),
    ),
    "worker_equals_reference": ((FRAMING, wrong_anchor),),
    "acceptance_holds_over_prompt_length": ((FRAMING, rows_lost_far_out),),
}
"""Defects by check; on the simulator, on vLLM, on both."""


class After(importlib.abc.MetaPathFinder):
    """Patches one module when it has been imported."""

    def __init__(self, name: str, patch: Patch) -> None:
        self._name, self._patch = name, patch

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        assert spec.loader is not None, name
        execute, patch = spec.loader.exec_module, self._patch

        def executed(module: ModuleType) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def plant(check: str, engine: str) -> None:
    """Have the check's defect in this process."""
    known = BOTH | (SIMULATOR if engine == "simulator" else VLLM)
    for name, patch in known[check]:
        sys.meta_path.insert(0, After(name, patch))


if os.environ.get("PLANT"):
    plant(os.environ["PLANT"], os.environ["PLANT_ENGINE"])
