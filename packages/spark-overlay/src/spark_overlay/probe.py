"""Ask a worker whether it would serve this engine, and how fast; disturbs no other engine.

`python -m spark_overlay.probe` needs the standard library and ofl only, so that it runs on a host
before anything else is installed there.  It opens a session of its own, under an engine id of its own
and the policy PROBE, and leaves it.  It first makes sure that this host's engine is idle: no window of an engine is
ever lost to a probe, but rounds of both at once would slow each other down and measure nothing.
Must never import numpy, pydantic, click or rich.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ofl.contract.dspark_v1 import (
    SERVICE,
    VERSION,
    EntryFlag,
    Envelope,
    Goodbye,
    Hello,
    HelloReply,
    Op,
    Ping,
    PingReply,
    Policy,
    Refused,
    Reply,
    Request,
    RequestStatus,
    RowDtype,
    RowForm,
    Shape,
    Stats,
    StatsReply,
    Status,
    Step,
    StepEntry,
    StepReply,
    decode_reply,
    encode_request,
)
from ofl.contract.identity import UNSTATED, parse_digest
from ofl.contract.records import ContractError
from ofl.endpoint import FORMS, parse_endpoint
from ofl.errors import EndpointError, TransportError
from ofl.interface import ClientTransport, Connect
from ofl.keys import KeyFileError, check_key

from spark_overlay.http_api.address import AddressError
from spark_overlay.http_api.idle import DEFAULT_METRICS_URL, NotIdle, check_metrics_url, require_idle

EXIT_OK, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, EXIT_NOT_IDLE = 0, 1, 3, 2, 4
PINGS = 50
FRAME_BYTES = 64 << 20
SETTINGS = "VLLM_DSPARK_REMOTE"
"""Prefix of the engine's settings; `settings` has them all, but needs more than the standard library."""
Value = str | int | float | bool | None
R = TypeVar("R", bound=Reply)


@dataclass
class Options:
    """What to ask.  step_rows: rows of the test round, 0 for none; steps: how often it is repeated."""

    endpoint: str
    identity: bytes
    markov_identity: bytes
    hello: bool = True
    step_rows: int = 0
    steps: int = 5
    timeout_s: float = 5.0


class ProbeRefused(Exception):
    """The worker answered and said no; the text is its reason."""


class Prober:
    """One connection to one worker, asked step by step; results holds what was learnt, in order."""

    def __init__(self, transport: ClientTransport, options: Options, clock_ns: Callable[[], int]) -> None:
        self._transport = transport
        self._options = options
        self._clock_ns = clock_ns
        self._engine_id = os.urandom(16)
        self._round = 0
        self._epoch = 0
        self.results: dict[str, Value] = {
            "wire": transport.peer.wire,
            "authenticated": transport.peer.authenticated,
        }

    def run(self) -> None:
        """Everything the options ask for.  Raises ProbeRefused, TransportError and ContractError."""
        self.ping()
        self.stats()
        if self._options.hello or self._options.step_rows:
            shape = self.hello()
            try:
                if self._options.step_rows:
                    self.step(shape)
            finally:
                self._call(Op.GOODBYE, Goodbye(self._engine_id))

    def ping(self) -> None:
        """Round trips of a message that does nothing; the answers name the life of the worker's process."""
        times = []
        for payload in range(PINGS):
            start_ns = self._clock_ns()
            reply = self._expect(PingReply, Op.PING, Ping(payload))
            times.append((self._clock_ns() - start_ns) / 1000)
            self.results["worker_life"] = f"{reply.boot_nonce:016x}"
        self.results["ping_us"] = round(statistics.median(times), 1)
        self.results["ping_us_max"] = round(max(times), 1)

    def stats(self) -> None:
        """The worker's own figures, as text."""
        self.results["worker_stats"] = self._expect(StatsReply, Op.STATS, Stats()).text

    def hello(self) -> Shape:
        """Open a session; returns the shape to use in it.

        The probe knows no engine, so it takes the worker's sizes and compares the identities alone.  The worker
        tells its sizes in the refusal of a HELLO that cannot fit; nothing else of the contract may be relied on for
        them (STATS is for people).
        """
        self._epoch = 1
        reply = self._call(Op.HELLO, Hello(self._engine_id, Policy.PROBE, self._guess()))
        if isinstance(reply, Refused) and reply.status is Status.MISMATCH and reply.hello is not None:
            self._describe(reply.hello)
            self._compare(reply.hello.shape)
            self._epoch = 2
            taken = replace(reply.hello.shape, max_slots=1)
            reply = self._call(Op.HELLO, Hello(self._engine_id, Policy.PROBE, taken))
        if isinstance(reply, Refused):
            self.results["hello_status"] = reply.status.name
            raise ProbeRefused(f"HELLO: {reply.status.name} {reply.said}")
        assert isinstance(reply, HelloReply)
        self._describe(reply)
        self._compare(reply.shape)
        self.results["hello_status"] = Status.OK.name
        return replace(reply.shape, max_slots=1)

    def step(self, shape: Shape) -> None:
        """Rounds of one made-up window in a slot of our own."""
        rows = min(self._options.step_rows, shape.max_positions - 1, self._rows_in_frame(shape))
        body = bytes(rows * shape.row_bytes)
        times: list[float] = []
        worker: list[float] = []
        for generation in range(1, self._options.steps + 1):
            entry = StepEntry(
                slot=0,
                flags=EntryFlag.RESET | EntryFlag.NEED_DRAFT,
                generation=generation,
                first_position=0,
                n_rows=rows,
                window_start=0,
                anchor=0,
                n_out=shape.block_length,
            )
            start_ns = self._clock_ns()
            reply = self._expect(StepReply, Op.STEP, Step((entry,), (body,)), shape)
            times.append((self._clock_ns() - start_ns) / 1000)
            worker.append(float(reply.queue_us + reply.draft_us))
            status = reply.entries[0].status
            self.results["step_rows"] = rows
            self.results["step_status"] = Status.OK.name
            self.results["step_req_status"] = status.name
            if status is not RequestStatus.OK:
                raise ProbeRefused(f"STEP: the entry failed with {status.name}")
        self.results["step_us"] = round(statistics.median(times), 1)
        self.results["step_worker_us"] = round(statistics.median(worker), 1)

    def _guess(self) -> Shape:
        """A shape with our identities; its sizes are the smallest allowed, for the worker to correct."""
        return Shape(
            identity=self._options.identity,
            markov_identity=self._options.markov_identity,
            target_binding=UNSTATED,
            vocabulary=1,
            row_elements=1,
            window=0,
            max_positions=1,
            max_frame_bytes=4096,
            block_length=1,
            max_slots=1,
            tap_count=1,
            row_form=RowForm.RAW,
            row_dtype=RowDtype.FLOAT32,
        )

    def _rows_in_frame(self, shape: Shape) -> int:
        limit = min(shape.max_frame_bytes, self._transport.peer.max_frame_bytes)
        return max(1, (limit - 4096) // shape.row_bytes)

    def _describe(self, hello: HelloReply) -> None:
        shape = hello.shape
        self.results["worker_name"] = hello.worker_name
        self.results["worker_identity"] = shape.identity.hex()
        self.results["worker_markov_identity"] = shape.markov_identity.hex()
        for name in ("vocabulary", "row_elements", "window", "block_length", "max_positions", "max_slots"):
            self.results[name] = int(getattr(shape, name))

    def _compare(self, theirs: Shape) -> None:
        for name in ("identity", "markov_identity"):
            ours, got = getattr(self._options, name), getattr(theirs, name)
            if ours != got:
                self.results["hello_status"] = Status.MISMATCH.name
                raise ProbeRefused(f"{name}: ours is {ours.hex()}, the worker has {got.hex()}")

    def _expect(self, kind: type[R], op: Op, request: Request, shape: Shape | None = None) -> R:
        reply = self._call(op, request, shape)
        if isinstance(reply, Refused):
            self.results[f"{op.name.lower()}_status"] = reply.status.name
            raise ProbeRefused(f"{op.name}: {reply.status.name} {reply.said}")
        assert isinstance(reply, kind)
        return reply

    def _call(self, op: Op, request: Request, shape: Shape | None = None) -> Reply:
        self._round += 1
        envelope = Envelope(op, self._epoch, self._round)
        parts = encode_request(envelope, request, shape)
        deadline_ns = self._clock_ns() + int(self._options.timeout_s * 1e9)
        return decode_reply(self._transport.call(parts, deadline_ns=deadline_ns), envelope, request, shape)


def probe(options: Options, connect: Connect, clock_ns: Callable[[], int]) -> tuple[int, dict[str, Value]]:
    """The exit code and what was learnt; "error" holds the reason where it is not 0."""
    results: dict[str, Value] = {}
    try:
        transport = connect(
            options.endpoint,
            service=SERVICE,
            version_min=VERSION,
            version_max=VERSION,
            max_frame_bytes=FRAME_BYTES,
            deadline_ns=clock_ns() + int(options.timeout_s * 1e9),
        )
    except (TransportError, OSError) as error:
        return EXIT_UNREACHABLE, {"error": str(error)}
    prober = Prober(transport, options, clock_ns)
    results = prober.results
    try:
        prober.run()
    except ProbeRefused as error:
        return EXIT_REFUSED, results | {"error": str(error)}
    except ContractError as error:
        return EXIT_REFUSED, results | {"error": f"the worker broke the contract: {error}"}
    except TransportError as error:
        return EXIT_UNREACHABLE, results | {"error": str(error)}
    finally:
        transport.close()
    return EXIT_OK, results


def parser() -> argparse.ArgumentParser:
    """The command line; `spark-overlay probe` passes its arguments on to it."""
    made = argparse.ArgumentParser(
        prog="spark-overlay probe",
        description="Ask a worker whether it would serve this engine, and how fast; disturbs no other.",
        epilog="worker_life is random per life of the worker's process, as in its own log and the engine's. "
        "--hello asks for the worker's sizes by a HELLO that cannot fit: it logs that as refused with MISMATCH "
        "and counts one refused_mismatch. Exit status: 0 it would, 1 it refused, 2 wrong usage, 3 no connection "
        "came about, be it that nobody is there or that the keys differ, 4 the engine has requests or cannot be "
        "asked, and the worker was not.",
    )
    _add_setting(made, "", "--endpoint", _endpoint, f"the worker: {FORMS}")
    _add_setting(made, "_IDENTITY", "--identity", _digest, "the drafter's identity, 64 hex digits")
    _add_setting(made, "_MARKOV_IDENTITY", "--markov-identity", _digest, "of its Markov tensors")
    meaning = "file with the key that both sides prove to each other; without: nothing is proved"
    _add_setting(made, "_KEY_FILE", "--key-file", _key_file, meaning, required=False)
    made.add_argument("--hello", action="store_true", help="open a session and compare identities")
    made.add_argument("--step-rows", type=_count, default=0, help="also draft from so many made-up rows")
    made.add_argument(
        "--metrics",
        type=_metrics_url,
        default=DEFAULT_METRICS_URL,
        metavar="URL",
        help="of the engine, which must be idle for --hello and --step-rows (default %(default)s)",
    )
    made.add_argument("--no-metrics-check", action="store_true", help="no engine is running: ask none")
    made.add_argument("--timeout-s", type=_seconds, default=5.0, help="for each answer (default 5)")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def _add_setting(
    made: argparse.ArgumentParser,
    name: str,
    option: str,
    kind: Callable[[str], object],
    meaning: str,
    *,
    required: bool = True,
) -> None:
    """An option that the engine's own setting stands in for, so that both are asked about the same worker."""
    given = os.environ.get(SETTINGS + name) or None
    help_text = f"{meaning} (default: {SETTINGS}{name})"
    made.add_argument(option, default=given, required=required and given is None, type=kind, help=help_text)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, ask, print; returns the exit status."""
    arguments = parser().parse_args(argv)
    code, results = _ask(arguments)
    if arguments.json:
        print(json.dumps({"exit_status": code} | results))
        return code
    for name, value in results.items():
        if name != "error":
            print(f"{name}: {value}")
    if code != EXIT_OK:
        print(f"spark-overlay probe: {results['error']}", file=sys.stderr)
    return code


def _ask(arguments: argparse.Namespace) -> tuple[int, dict[str, Value]]:
    """As `probe`, once the engine was found idle."""
    found: dict[str, Value] = {}
    if (arguments.hello or arguments.step_rows) and not arguments.no_metrics_check:
        try:
            found["engine_load"] = str(require_idle(arguments.metrics, arguments.timeout_s))
        except NotIdle as error:
            return EXIT_NOT_IDLE, {"error": str(error)}
    from ofl.client import connect  # here, because it loads the native library: --help must work without

    options = Options(
        arguments.endpoint,
        arguments.identity,
        arguments.markov_identity,
        hello=arguments.hello,
        step_rows=arguments.step_rows,
        timeout_s=arguments.timeout_s,
    )
    proving: Connect = partial(connect, key_file=arguments.key_file) if arguments.key_file else connect
    code, results = probe(options, proving, time.monotonic_ns)
    return code, found | results


def _endpoint(text: str) -> str:
    try:
        return str(parse_endpoint(text))
    except EndpointError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _key_file(text: str) -> str:
    try:
        check_key(text)
    except KeyFileError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _metrics_url(text: str) -> str:
    try:
        return check_metrics_url(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _digest(text: str) -> bytes:
    try:
        return parse_digest(text, "digest")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number of rows is needed, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"seconds above 0 are needed, not {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
