"""Texts that may leave the host: patterns for values, and the sentences of our own logs.  Pure.

A sentence is a template.  What stands in its braces must have the form that the brace names; `reason` alone may be
anything, and is replaced unless it is one of the reasons that we know word by word.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType

from ofl.contract.dspark_v1 import Op, RequestStatus, Shape, Status

from spark_overlay.figures import LATENCIES
from spark_overlay.round import reasons

LEFT_OUT = "[left out]"

_NUMBER = r"-?\d{1,15}(?:[.,]\d{1,9})?(?:e[+-]?\d{1,3})?"
_ADDRESS = r"(?:\[[0-9a-fA-F:.%]{2,60}\]|[A-Za-z0-9.-]{1,253})"
ENDPOINT = (
    rf"(?:tcp|rdma)://{_ADDRESS}:\d{{1,5}}(?:\?bind=[0-9a-fA-F:.%]{{2,60}})?|shm://[A-Za-z0-9._-]{{1,64}}"
)
DIGEST, NONCE, ENGINE_ID = "[0-9a-f]{64}", "[0-9a-f]{16}", "[0-9a-f]{32}"
VERSION = r"\d{1,4}(?:\.\d{1,5}){1,3}(?:(?:a|b|rc|\.post|\.dev)\d{1,5})?(?:\+[a-z]{1,4}\d{0,5})?"
CONTRACT = r"[a-z]{1,10}-v\d{1,3}"
POLICY = "capacity|resilience|shadow|probe"


def _one_of(words: Sequence[str]) -> str:
    return "|".join(map(re.escape, words))


FORMS: Mapping[str, str] = MappingProxyType(
    {
        "number": _NUMBER,
        "endpoint": ENDPOINT,
        "endpoints": rf"(?:{ENDPOINT})(?:, (?:{ENDPOINT}))*",
        "address": rf"{_ADDRESS}:\d{{1,5}}",
        "nonce": NONCE,
        "engine": ENGINE_ID,
        "policy": POLICY,
        "drafts": "local|remote",
        "operation": _one_of([op.name for op in Op]),
        "status": _one_of([one.name for kind in (Status, RequestStatus) for one in kind]),
        "counts": rf"(?: \((?:{_one_of(reasons.ALL)}) \d+(?:, (?:{_one_of(reasons.ALL)}) \d+)*\))?",
        "latencies": rf"(?:; p50/p99 (?:{_one_of(list(LATENCIES))}) \d+/\d+"
        rf"(?:, (?:{_one_of(list(LATENCIES))}) \d+/\d+)*)?",
        "verified": r"(?: \(verified: (?:local|remote) drafts\))?",
        "rank": "rank|ranks",
        "field": _one_of([one.name for one in fields(Shape)]),
        "value": rf"{DIGEST}|\d{{1,12}}",
        "shape": rf"identity {DIGEST}, Markov identity {DIGEST}, vocabulary \d{{1,12}}, \d{{1,12}} elements a row, "
        r"window \d{1,12}, \d{1,12} positions, \d{1,12} slots|unknown",
    }
)
"""What a brace may hold, by its name."""

MISMATCH = "hello.{field}: the engine has {value}, the worker has {value}"
REASONS = (
    "connected",
    "goodbye",
    MISMATCH,
    f"the worker refused HELLO with MISMATCH: {MISMATCH}",
    f"HELLO: MISMATCH {MISMATCH}",
    "{field}: ours is {value}, the worker has {value}",
    "the worker refused HELLO with {status}: {status}",
    "the connection allows messages of {number} bytes, {number} are needed",
    "the connection is lost",
    "the peer closed the connection without a word",
    "the client closed the connection",
    "{endpoint}: nobody listens on {address}",
    "{endpoint}: nobody listens on {endpoint}",
    "{endpoint}: {address} refused: the proof is wrong: the client holds another key",
    "{endpoint}: {address} refused: this server wants proof: the client must use its key file",
    "header.op: this worker is shutting down",
    "a defect of the overlay",
    *reasons.ALL,
)
"""Reasons that are kept as they are; every other may quote a peer."""

OVERLAY_LINES = (
    "remote DSpark worker '{reason}' of life {nonce} ready at {endpoint} (session {engine}, epoch {number})",
    "remote DSpark worker at {endpoint}: {reason}",
    "remote DSpark session {number} with {endpoint} ended: {reason}",
    "remote DSpark disabled for this engine run: {reason}; the engine: {shape}; the worker: {shape}",
    "remote DSpark disabled for this engine run: {reason}",
    "remote DSpark: a round failed for a defect of the overlay; counted from here on",
    "the stats file {reason} cannot be written: {reason}",
    "a defect of the overlay kept the stats file back: {reason}",
    "remote DSpark ({policy} policy) rank 0 -> {endpoint}",
    "remote DSpark circuit breaker open ({number} failed attempts in a row, the last: {reason}; the next {number} "
    "rounds stay off the network)",
    "remote DSpark circuit breaker closed: the probe round succeeded",
    "remote DSpark shadow: {number} mismatches logged; further ones are counted",
    "remote DSpark: {number} of the last {number} rounds missed their deadline of {number} ms, and each made its step "
    "that much longer: compare worker_us and wire_us in the stats, and x86-worker status, with "
    "VLLM_DSPARK_REMOTE_TIMEOUT_MS",
    "remote DSpark: no draft was accepted in the last {number} verified rounds, though the worker answers: compare its "
    "identity, target layers and dtype with the engine's model, and acceptance.by_context in the stats",
    "remote DSpark: {number} rounds ok, {number} failed{counts}, {number} in part; {number} accepted a "
    "round{latencies}",
    "remote DSpark control: {reason}",
    "drafting remotely through {endpoint}, policy {policy}{verified}, for {number} {rank}; the worker {reason}",
    "adaptive verification by the worker's confidences; a draft costs {number} ms {reason}",
)
LAUNCHER_LINES = (
    "spark-overlay: process {number} has the remote drafter ({policy}) in place{reason}",
    "spark-overlay: the worker's endpoint is {endpoint}; {reason}",
    "spark-overlay: the command ended with status {number} before the remote drafter was in place{reason}",
    "spark-overlay: the engine wrote no readiness record within {number} s and was ended: {reason}",
)
WORKER_LINES = (
    "session opened: engine {engine}, epoch {number}, policy {policy}",
    "session closed: engine {engine}, epoch {number}: {reason}",
    "connection {number}: {operation} refused with {status}: {reason}",
    "drafter failed for slot {number} of engine {engine}: {reason}",
    "{reason} listens on {endpoints} for {reason}",
    "stopping on signal {number} with {number} sessions open",
    "stopped",
)
_TOLD = re.compile(r"\{(\w+)\}")


def pattern(template: str) -> re.Pattern[str]:
    """The regular expression of a template; its groups, all named `reason…`, are what may be anything."""
    made, end = "", 0
    for count, found in enumerate(_TOLD.finditer(template)):
        made += re.escape(template[end : found.start()])
        name = found[1]
        made += f"(?P<reason{count}>.*?)" if name == "reason" else f"(?:{FORMS[name]})"
        end = found.end()
    return re.compile(made + re.escape(template[end:]))


_LINES = tuple(pattern(line) for line in (*OVERLAY_LINES, *LAUNCHER_LINES, *WORKER_LINES))
_REASONS = tuple(pattern(reason) for reason in REASONS)


def reason(text: str) -> str:
    """A reason that we know, or LEFT_OUT; empty stays empty."""
    known = not text or any(one.fullmatch(text) for one in _REASONS)
    return text if known else LEFT_OUT


def sentence(text: str) -> str:
    """A sentence of ours with its unknown reasons replaced; "" where it is none of ours."""
    for one in _LINES:
        found = one.fullmatch(text)
        if found is not None:
            return _reasons_replaced(found)
    return ""


def _reasons_replaced(found: re.Match[str]) -> str:
    text, end = "", 0
    for name in found.groupdict():
        begin, stop = found.span(name)
        text += found.string[end:begin] + reason(found[name])
        end = stop
    return text + found.string[end:]


def fits(form: str, value: object) -> bool:
    """Whether a value is a text of that form, whole."""
    return isinstance(value, str) and re.fullmatch(form, value) is not None
