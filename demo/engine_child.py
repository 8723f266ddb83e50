"""One real vLLM engine in a process of its own: orders come in as JSON lines, what it generates goes out as JSON lines.

Owns the engine.  Knows nothing of workers or comparisons: with the overlay's settings in the environment and a
speculative configuration in its argument it drafts remotely, without both it is the plain engine.

Orders (stdin): {"prompt": str, "max_tokens": int}, {"stop": true} ends the current request early, {"quit": true}.
Events (stdout, which nothing else writes to: what vLLM prints goes to stderr): ready, tokens as they come, finished.
"""

import json
import os
import queue
import sys
import threading
import time
from typing import Any, TextIO

TARGET_LEN_MAX = 1024


def main() -> int:
    """Run until told to quit or until stdin ends.  argv[1]: JSON of extra engine arguments."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(sys.stdin, orders), daemon=True, name="orders").start()
    started = time.monotonic()
    engine = _build(json.loads(sys.argv[1]))
    _say(events, event="ready", seconds=time.monotonic() - started)
    number = 0
    while "quit" not in (order := orders.get()):
        if "prompt" in order:
            number += 1
            _serve(engine, f"demo-{number}", order, orders, events)
    shutdown = getattr(engine.engine_core, "shutdown", None)
    if shutdown is not None:
        shutdown()
    return 0


def _build(extra: dict[str, Any]) -> Any:
    from vllm import EngineArgs, LLMEngine  # seconds of import, after the order reader runs

    arguments = {
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": TARGET_LEN_MAX,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 512,
        "kv_cache_memory_bytes": 64 << 20,
        "enable_prefix_caching": False,
        "distributed_executor_backend": "uni",
        "disable_log_stats": True,
    }
    return LLMEngine.from_engine_args(EngineArgs(**(arguments | extra)))


def _serve(
    engine: Any, name: str, order: dict[str, Any], orders: "queue.SimpleQueue[dict[str, Any]]", events: TextIO
) -> None:
    """One request, streamed.  Stops early at a stop order; any other order waits its turn and is put back."""
    from vllm import SamplingParams  # as above
    from vllm.sampling_params import RequestOutputKind

    parameters = SamplingParams(
        temperature=0.0,
        max_tokens=order["max_tokens"],
        ignore_eos=True,
        logprobs=order.get("logprobs"),
        output_kind=RequestOutputKind.DELTA,
    )
    engine.add_request(name, order["prompt"], parameters)
    while engine.has_unfinished_requests():
        for output in engine.step():
            part = output.outputs[0]
            margins = [_margin(position) for position in part.logprobs or []]
            _say(
                events,
                event="tokens",
                ids=list(part.token_ids),
                text=part.text,
                margins=margins,
                at_ns=time.monotonic_ns(),
            )
        if _stopped(orders):
            engine.abort_request([name])
            while engine.has_unfinished_requests():
                engine.step()
    _say(events, event="finished")


def _stopped(orders: "queue.SimpleQueue[dict[str, Any]]") -> bool:
    try:
        order = orders.get_nowait()
    except queue.Empty:
        return False
    if "stop" in order:
        return True
    orders.put(order)
    return "quit" in order


def _margin(position: dict[int, Any]) -> float:
    """Difference of the two best log-probabilities of one position, which is that of the logits."""
    best = sorted((entry.logprob for entry in position.values()), reverse=True)
    return float(best[0] - best[1]) if len(best) > 1 else float("inf")


def _read_orders(stream: TextIO, orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in stream:
        orders.put(json.loads(line))
    orders.put({"quit": True})


def _say(events: TextIO, **fields: object) -> None:
    events.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    sys.exit(main())
