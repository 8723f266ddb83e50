"""The stats file, the readiness record and the manifest of the file overlay, as far as we know what is in them.  Pure.

Of everything else it keeps that there was some: the number of fields that were left out.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ofl.contract.dspark_v1 import layout

from spark_overlay.agreement import INELIGIBLE
from spark_overlay.figures import LATENCIES
from spark_overlay.link import LinkCounters
from spark_overlay.readiness import ReadinessRecord
from spark_overlay.round.breaker import State
from spark_overlay.round.counters import Counters
from spark_overlay.support_bundle.known_text import (
    CONTRACT,
    DIGEST,
    ENDPOINT,
    ENGINE_ID,
    NONCE,
    POLICY,
    VERSION,
    fits,
    reason,
)

Keep = Callable[[Any], Any]
"""A value, or what is kept of it; raises ValueError where nothing may be."""
_LIST_MAX = 4096
DEPTH_MAX = layout.BLOCK_LENGTH_MAX
NUMBER_LIMIT = 1 << 64
"""No figure has more bits; a text written as one number would have."""


def number(value: Any) -> Any:
    """Numbers, true, false and null."""
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < NUMBER_LIMIT):
        return value
    raise ValueError


def numbers(value: Any) -> Any:
    """A list of numbers."""
    if value is not None and not (isinstance(value, list) and len(value) <= _LIST_MAX):
        raise ValueError
    return value if value is None else [number(one) for one in value]


def depths(value: Any) -> Any:
    """A list of draft positions: no block has more than DEPTH_MAX, and hardly a token is below it."""
    kept = numbers(value)
    if kept is not None and any(one is None or not 0 <= one <= DEPTH_MAX for one in kept):
        raise ValueError
    return kept


def text(form: str) -> Keep:
    """A text of a form, or an empty one."""

    def keep(value: Any) -> Any:
        if value in ("", None) or fits(form, value):
            return value
        raise ValueError

    return keep


def known_reason(value: Any) -> Any:
    """A reason that we know, or that there is one."""
    if not isinstance(value, str):
        raise ValueError
    return reason(value)


def fields(known: Mapping[str, Keep]) -> Keep:
    """A mapping of known fields; what is not known is counted."""

    def keep(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError
        kept: dict[str, Any] = {}
        for name, inner in value.items():
            try:
                kept[name] = known[name](inner)
            except (KeyError, ValueError):
                kept["left_out"] = kept.get("left_out", 0) + 1
        return kept

    return keep


def several(one: Keep) -> Keep:
    """A list of mappings."""

    def keep(value: Any) -> Any:
        if not isinstance(value, list) or len(value) > _LIST_MAX:
            raise ValueError
        return [one(inner) for inner in value]

    return keep


def _numbers(names: Iterable[str]) -> dict[str, Keep]:
    return dict.fromkeys(names, number)


_LATENCY = ("count", "sum", "p50", "p90", "p99", "max")
_ACCEPTED = ("verified", "accepted", "drafted", "accepted_per_round")
_BY_POSITION = (
    *("rate_by_position", "accepted_by_position", "drafted_by_position"),
    *("compared_by_position", "agreed_by_position", "agree_rate_by_position", "first_mismatch_hist"),
)
_MEMORY = (
    *("target_parameter_bytes", "drafter_parameter_bytes", "words_host_bytes", "words_device_bytes"),
    *("mtp_hidden_buffer_bytes", "ring_bytes", "gather_host_bytes", "gather_device_bytes", "gather_rows_max"),
    *("row_bytes", "kv_target_layers", "kv_draft_layers", "kv_target_page_bytes", "kv_draft_page_bytes"),
    *("kv_bytes", "kv_block_bytes", "kv_blocks", "kv_block_tokens", "kv_groups", "lookahead_slots"),
    *("scheduled_tokens_max", "reserved_tokens", "prefix_caching", "eagle_block_drop"),
)
_WORKER_NUMBERS = ("window", "block_length", "max_slots", "confidence", "fake_drafts")
_TRANSPORT_NUMBERS = ("authenticated", "version", "max_frame_bytes", "peer_max_frame_bytes")
_SHADOW_NUMBERS = ("eligible", "eligible_share", "full_block_agree_rate", "mismatches", "near_ties")

STATS = fields(
    {
        "engine_id": text(ENGINE_ID),
        "endpoint": text(ENDPOINT),
        "policy": text(POLICY),
        "shadow_use": text("local|remote"),
        "on_fail": text("draft-nothing|raise"),
        **_numbers(("timeout_ms", "epoch", "acceptance_alarm", "budget_rows", "connected")),
        "counters": fields(_numbers([*Counters.meanings(), *LinkCounters.meanings()])),
        "breaker": fields(
            {
                "state": text("|".join(state.value for state in State)),
                **_numbers(("consecutive_failures", "cooldown_left", "trips", "trip", "cooldown")),
            }
        ),
        "latency": fields(dict.fromkeys(LATENCIES, fields(_numbers(_LATENCY)))),
        "acceptance": fields(
            {
                **_numbers(_ACCEPTED),
                **dict.fromkeys(_BY_POSITION, numbers),
                "by_context": several(fields(_numbers(("from", "below", *_ACCEPTED)))),
            }
        ),
        # "examples" holds tokens of mismatches, and is left out.
        "shadow": fields(
            {
                **_numbers(_SHADOW_NUMBERS),
                **dict.fromkeys(_BY_POSITION, numbers),
                "ineligible": fields(_numbers(INELIGIBLE)),
            }
        ),
        "n_out_by_reqs": depths,
        "rank0_buffers": fields(_numbers(("ring_bytes", "ring_rows"))),
        "memory": fields(_numbers(_MEMORY)),
        **dict.fromkeys(
            ("disabled", "last_failure", "last_bad_reply", "last_internal_error", "n_out_reason"),
            known_reason,
        ),
        "worker": fields(
            {
                "boot_nonce": text(NONCE),
                "identity": text(DIGEST),
                "markov_identity": text(DIGEST),
                **_numbers(_WORKER_NUMBERS),
            }
        ),
        "transport": fields(
            {
                "scheme": text("tcp|rdma|shm"),
                "boot_nonce": text(NONCE),
                "library": text(rf"ofl {VERSION}"),
                **_numbers(_TRANSPORT_NUMBERS),
            }
        ),
    }
)
"""What is kept of a stats file."""

MANIFEST = fields(
    {
        "format": number,
        "vllm_version": text(VERSION),
        "file": text(r"vllm/[a-z0-9_/]{1,120}\.py"),
        "base_sha256": text(DIGEST),
        "overlay_sha256": text(DIGEST),
        "spark_overlay": fields(
            {
                "version": text(VERSION),
                "wheel": text(rf"spark_overlay-{VERSION}-py3-none-any\.whl"),
                "wheel_sha256": text(DIGEST),
                "sha256": text(DIGEST),
            }
        ),
    }
)
"""What is kept of the file overlay's manifest."""

_RECORD_VERSIONS = ("spark-overlay", "contract", "vllm", "ofl-transport", "ofl-abi")


def readiness(record: ReadinessRecord) -> dict[str, Any]:
    """What is kept of a readiness record; the worker's state without the words that may be its own."""
    state = re.match(r"connected|not there yet|not used in this run|not used while paused", record.worker)
    kept = fields(
        {
            "format": number,
            "pid": number,
            "start_id": text(ENGINE_ID),
            "policy": text(POLICY),
            "endpoint": text(ENDPOINT),
            "identity": text(DIGEST),
            "versions": fields(dict.fromkeys(_RECORD_VERSIONS, text(rf"{VERSION}|{CONTRACT}|\d{{1,3}}"))),
        }
    )(vars(record) | {"versions": dict(record.versions)})
    kept.pop("left_out", None)
    return {**kept, "worker": state[0] if state else ""}
