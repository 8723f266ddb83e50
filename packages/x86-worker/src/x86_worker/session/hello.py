"""HELLO: whether an engine and this drafter fit, and what the worker says of itself.  No state."""

from dataclasses import dataclass

from ofl.contract.dspark_v1 import (
    Hello,
    HelloFlag,
    HelloReply,
    Policy,
    RowDtype,
    RowForm,
    Shape,
    Status,
)
from ofl.contract.dspark_v1.rules import first_mismatch

from x86_worker.drafters.base import DrafterFacts
from x86_worker.session.errors import RemoteError
from x86_worker.session.limits import Limits

HARMLESS_POLICIES = frozenset({Policy.SHADOW, Policy.PROBE})
"""Policies under which no draft reaches a verifier, so that made-up ones cost nothing."""


@dataclass(frozen=True)
class Greeter:
    """What every HELLO is answered from.  any_policy: serve fake drafts to engines that would use them."""

    facts: DrafterFacts
    limits: Limits
    worker_name: str
    boot_nonce: int
    any_policy: bool = False

    def answer(self, hello: Hello) -> HelloReply:
        """The reply to an engine that fits.  Raises RemoteError with POLICY or MISMATCH."""
        if self.facts.fake and not self.any_policy and hello.policy not in HARMLESS_POLICIES:
            detail = f"{hello.policy.name} where fake drafts serve SHADOW and PROBE only"
            raise RemoteError(Status.POLICY, "hello.policy", detail)
        reply = self._reply(hello.shape)
        mismatch = first_mismatch(hello.shape, reply.shape)
        if mismatch is not None:
            raise RemoteError(Status.MISMATCH, *mismatch, reply)
        return reply

    def _reply(self, engine: Shape) -> HelloReply:
        flags = HelloFlag.NONE
        if self.facts.has_confidence:
            flags |= HelloFlag.CONFIDENCE
        if self.facts.fake:
            flags |= HelloFlag.FAKE_DRAFTS
        return HelloReply(
            self.worker_name, self.boot_nonce, flags, self.shape(engine.row_form, engine.row_dtype)
        )

    def shape(self, row_form: RowForm, row_dtype: RowDtype) -> Shape:
        """The worker's shape with the engine's way of sending rows where the drafter takes it."""
        facts, limits = self.facts, self.limits
        if row_form not in facts.row_elements:
            row_form = min(facts.row_elements)
        if row_dtype not in facts.row_dtypes:
            row_dtype = min(facts.row_dtypes)
        return Shape(
            identity=facts.identity,
            markov_identity=facts.markov_identity,
            target_binding=facts.target_binding,
            vocabulary=facts.vocabulary,
            row_elements=facts.row_elements[row_form],
            window=facts.window,
            max_positions=facts.max_positions,
            max_frame_bytes=limits.max_frame_bytes,
            block_length=facts.block_length,
            max_slots=limits.max_slots,
            tap_count=facts.tap_count,
            row_form=row_form,
            row_dtype=row_dtype,
        )
