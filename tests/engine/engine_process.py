"""One real vLLM engine in a process of its own, driven step by step through JSON lines.

Orders (stdin)
    {"start": {engine arguments}}    -> {"event": "ready", ...} or {"event": "refused", "text": ...}
    {"run": {id: {"prompt": [ids], "max_tokens": n, "at_step": k}}, "pauses": [steps]}
                                     -> {"event": "paused", "step": k} each, then {"event": "finished", ...}
                                     or {"event": "failed", "text": ...} where a step raised
    {"go": true}                     goes on after a pause
    {"stats": true}                  -> {"event": "stats", ...}, the drafter's figures
    {"ranks": name, "arguments": []} -> {"event": "ranks", "results": [...]}, a function of `engine_ranks` on each
    {"stock": true}                  puts vLLM's own `init_speculator` where the model runner looks for it
    {"quit": true}                   ends the engine and the process
Events leave through stdout, which nothing else writes to: whatever vLLM prints goes to stderr.  An order with
"environment" sets (or, with null, unsets) variables first.
"""

import importlib.util
import json
import os
import sys
from typing import Any, TextIO

import engine_ranks

CPU_ARGUMENTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "skip_tokenizer_init": True,
    "block_size": 32,
    "kv_cache_memory_bytes": 64 << 20,
    "distributed_executor_backend": "uni",
    "disable_log_stats": True,
}
"""What makes vLLM's CPU engine start in seconds."""


class EngineProcess:
    """The process's side of the conversation."""

    def __init__(self, orders: TextIO, events: TextIO) -> None:
        self._orders, self._events = orders, events
        self._engine: Any = None
        self._preemptions = 0

    def serve(self) -> None:
        """Follow orders until the last."""
        while (order := self._next()) is not None:
            for name, value in order.get("environment", {}).items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            if "stock" in order:
                _use_stock_speculators()
            if "start" in order:
                self._start(order["start"])
            if "run" in order:
                self._run(order["run"], order.get("pauses", []))
            elif "go" in order:
                self._say(event="failed", kind="", text="no run is paused")
            self._inspect(order)
            if "quit" in order:
                break
        if self._engine is not None:
            self._engine.engine_core.shutdown()

    def _inspect(self, order: dict[str, Any]) -> None:
        """What may be asked at any time."""
        if "stats" in order:
            (figures,) = (found for found in self._on_ranks("figures") if found is not None)
            self._say(event="stats", **figures)
        if "ranks" in order:
            self._say(event="ranks", results=self._on_ranks(order["ranks"], *order.get("arguments", [])))

    def _on_ranks(self, name: str, *arguments: Any) -> list[Any]:
        """A function of `engine_ranks` on every rank, their results by rank."""
        results: list[Any] = self._engine.collective_rpc(getattr(engine_ranks, name), args=arguments)
        return results

    def _start(self, arguments: dict[str, Any]) -> None:
        from vllm import EngineArgs, LLMEngine

        try:
            self._engine = LLMEngine.from_engine_args(EngineArgs(**(CPU_ARGUMENTS | arguments)))
        except Exception as error:
            self._say(event="refused", kind=type(error).__name__, text=str(error))
            return
        self._say(event="ready", pid=os.getpid(), **self._inspected())

    def _inspected(self) -> dict[str, Any]:
        """What of the engine a test may want to know; the speculator only where it lives in this process."""
        import vllm
        import vllm.v1.worker.gpu.spec_decode as spec_decode
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.worker.worker_base import WorkerWrapperBase

        original = Scheduler._preempt_request

        def counted(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            self._preemptions += 1
            return original(scheduler, *args, **kwargs)

        Scheduler._preempt_request = counted
        # Where the engine's core is another process, no function of ours can be sent to its ranks.
        in_process = getattr(self._engine, "model_executor", None) is not None
        ranks = self._on_ranks("describe") if in_process else []
        return {
            "vllm": vllm.__version__,
            "speculator": ranks[0]["speculator"] if ranks else None,
            "ranks": ranks,
            "init_speculator_of": spec_decode.init_speculator.__module__,
            "wrapper_methods_of": sorted(
                {
                    getattr(WorkerWrapperBase, name).__module__
                    for name in ("init_device", "shutdown", "compile_or_warm_up_model")
                    if hasattr(WorkerWrapperBase, name)
                }
            ),
            "overlay_modules": sorted(name for name in sys.modules if name.startswith("spark_overlay")),
        }

    def _run(self, requests: dict[str, dict[str, Any]], pauses: list[int]) -> None:
        try:
            self._run_steps(requests, pauses)
        except Exception as error:
            self._say(event="failed", kind=type(error).__name__, text=str(error))

    def _run_steps(self, requests: dict[str, dict[str, Any]], pauses: list[int]) -> None:
        from vllm import SamplingParams

        waiting, tokens, cached = dict(requests), {}, {}
        self._preemptions = 0
        step = 0
        while waiting or self._engine.has_unfinished_requests():
            for name in [name for name, request in waiting.items() if request.get("at_step", 0) <= step]:
                request = waiting.pop(name)
                sampling = SamplingParams(
                    temperature=0.0, max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False
                )
                self._engine.add_request(name, {"prompt_token_ids": request["prompt"]}, sampling)
            for output in self._engine.step():
                if output.finished:
                    tokens[output.request_id] = list(output.outputs[0].token_ids)
                    cached[output.request_id] = output.num_cached_tokens
            step += 1
            if step in pauses:
                self._say(event="paused", step=step)
                while "go" not in (order := self._next() or {"go": True}):
                    self._inspect(order)
        self._say(event="finished", tokens=tokens, cached=cached, steps=step, preemptions=self._preemptions)

    def _next(self) -> dict[str, Any] | None:
        line = self._orders.readline()
        return json.loads(line) if line else None

    def _say(self, **fields: Any) -> None:
        self._events.write(json.dumps(fields) + "\n")


def _use_stock_speculators() -> None:
    """As if the overlay's rebinding had come too late or had been undone: its guard alone is left."""
    import vllm.v1.worker.gpu.model_runner as model_runner
    import vllm.v1.worker.gpu.spec_decode as spec_decode

    found = importlib.util.spec_from_file_location("stock_spec_decode", spec_decode.__file__)
    assert found is not None
    assert found.loader is not None
    stock = importlib.util.module_from_spec(found)
    found.loader.exec_module(stock)
    model_runner.init_speculator = stock.init_speculator


def main() -> None:
    """Serve orders from descriptor 0; events leave through what descriptor 1 was."""
    with (
        open(0, encoding="utf-8", closefd=False) as orders,
        os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as events,
    ):
        os.dup2(2, 1)
        EngineProcess(orders, events).serve()


if __name__ == "__main__":
    main()
