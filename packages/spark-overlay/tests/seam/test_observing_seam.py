"""Observation on vLLM's objects, which stand-ins play: where hooks go on, and that they change nothing."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.observe.watch import StepRequest
from spark_overlay.settings import SettingsError
from spark_overlay.vllm_seam import observing, plugin
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.guard import guard

KEY = "5e" * 32


@pytest.fixture
def settings(tmp_path: Path) -> ObserveSettings:
    made = ObserveSettings.from_environ(
        {"VLLM_DSPARK_OBSERVE": str(tmp_path), "VLLM_DSPARK_OBSERVE_KEY": KEY}
    )
    assert made is not None
    return made


class Worker:
    """A worker that says what is called on it, in order."""

    def __init__(self, log: list[str]) -> None:
        self.model_runner = SimpleNamespace(speculator=None)
        self._log = log

    def compile_or_warm_up_model(self) -> str:
        self._log.append("warm up")
        return "times"


class RecordingObserver:
    """Stands for `Observer`."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.seen: list[Any] = []

    def begin(self, read: Any) -> None:
        self._log.append("begin")
        self.seen.append(read())

    def decided(self, read: Any) -> None:
        self._log.append("decided")
        self.seen.append(read())

    def end(self, read: Any) -> None:
        self._log.append("end")
        self.seen.append(read())

    def close(self) -> None:
        self._log.append("closed")


def wrapper_class(log: list[str]) -> type:
    """Built as vLLM's WorkerWrapperBase is."""

    class Wrapper:
        def __init__(self) -> None:
            self.worker = Worker(log)

        def init_device(self) -> None: ...

        def shutdown(self) -> None:
            log.append("shutdown")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.worker, name)

    return Wrapper


def test_hooks_go_on_after_the_warm_up_and_the_file_is_closed_before_the_worker(
    settings: ObserveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def attach(*_: object) -> RecordingObserver:
        log.append("attached")
        return RecordingObserver(log)

    monkeypatch.setattr(observing, "attach", attach)
    cls = wrapper_class(log)
    for _ in range(2):  # wrapped once
        observing.wrap(cls, settings, None, "0.32.0")
    wrapped = cls()
    assert wrapped.compile_or_warm_up_model() == "times"
    wrapped.shutdown()
    assert log == ["warm up", "attached", "closed", "shutdown"]


def test_a_worker_that_never_came_up_is_shut_down_all_the_same(settings: ObserveSettings) -> None:
    log: list[str] = []
    cls = wrapper_class(log)
    observing.wrap(cls, settings, None, "0.32.0")
    cls().shutdown()
    assert log == ["shutdown"]


def test_an_engine_whose_drafter_would_connect_first_is_refused(settings: ObserveSettings) -> None:
    cls = wrapper_class([])
    guard(cls, "capacity")
    with pytest.raises(SeamError, match="VLLM_DSPARK_OBSERVE must be set before"):
        observing.wrap(cls, settings, None, "0.32.0")


def test_an_engine_that_trims_drafts_on_the_device_is_not_observed(settings: ObserveSettings) -> None:
    runner = SimpleNamespace(
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(tensor_parallel_size=1)),
        speculative_config=SimpleNamespace(enable_adaptive_verification=True),
    )
    with pytest.raises(SeamError, match="the device alone then knows which drafts a step verifies"):
        observing.attach(runner, settings, None, "0.33.0")


NAMES = ("input_batch", "num_sampled", "num_rejected", "last_sampled", "dummy_run", "is_profile")


def call() -> dict[str, Any]:
    """Two requests: 5 tokens at position 30 with 4 drafts of which 3 were rejected, and 7 of a prompt."""
    return {
        "input_batch": SimpleNamespace(
            num_reqs=2,
            req_ids=["one", "two"],
            query_start_loc_np=np.array([0, 5, 12, 12], np.int32),  # padded
            num_draft_tokens_per_req=np.array([4, 0], np.int32),
            idx_mapping_np=np.array([3, 1, 0], np.int32),
            positions=np.array([*range(30, 35), *range(64, 71)]),
        ),
        "num_sampled": np.array([2, 0, 9]),
        "num_rejected": np.array([3, 0, 9]),
        "last_sampled": np.array([[10], [11], [12], [13]]),
    }


STEP = [
    StepRequest("one", 3, 30, 5, 5, 2, 3, 4, 13, 0),
    StepRequest("two", 1, 64, 7, 7, 0, 0, 0, 11, 29),
]


def test_a_call_of_propose_says_what_the_step_is() -> None:
    prefill = [0, 100, 0, 20]
    assert observing.step_requests(call(), prefill) == STEP
    unknown = observing.step_requests(call(), None)
    assert [request.remaining for request in unknown] == [-1, -1]
    plain = call()
    plain["input_batch"].num_draft_tokens_per_req = None
    assert [request.verified for request in observing.step_requests(plain, prefill)] == [0, 0]


@pytest.mark.parametrize(
    ("states", "lengths"),
    [(SimpleNamespace(prefill_len=SimpleNamespace(np=[7])), [7]), (SimpleNamespace(), None)],
)
def test_prompt_lengths_are_read_where_a_version_keeps_them(states: Any, lengths: Any) -> None:
    assert observing.prefill_lengths(states) == lengths


class Speculator:
    """Stands for vLLM's own."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self.drafts: Any = np.array([[1, 2], [0, 0], [9, 9]])

    def propose(
        self,
        input_batch: Any,
        num_sampled: Any,
        num_rejected: Any,
        last_sampled: Any,
        dummy_run: bool = False,
        is_profile: bool = False,
    ) -> Any:
        self._log.append("propose")
        if self.drafts is None:
            raise RuntimeError("a round failed")
        return self.drafts


def test_a_real_step_is_seen_before_and_after_with_its_own_result() -> None:
    log: list[str] = []
    speculator, observer = Speculator(log), RecordingObserver(log)
    observing.hook(speculator, observer, None, [0, 100, 0, 20])  # type: ignore[arg-type]
    batch, num_sampled, num_rejected, last_sampled = call().values()
    assert (
        speculator.propose(batch, num_sampled, num_rejected, last_sampled=last_sampled) is speculator.drafts
    )
    assert log == ["begin", "propose", "end"]
    assert observer.seen == [STEP, [[1, 2], [0, 0]]]


@pytest.mark.parametrize("flag", ["dummy_run", "is_profile"])
def test_what_is_no_step_of_requests_is_not_seen(flag: str) -> None:
    log: list[str] = []
    speculator = Speculator(log)
    observing.hook(speculator, RecordingObserver(log), None, None)  # type: ignore[arg-type]
    assert speculator.propose(**call(), **{flag: True}) is speculator.drafts
    assert log == ["propose"]


def test_the_words_of_a_remote_round_are_read_also_where_it_ends_the_engine() -> None:
    log: list[str] = []
    speculator, observer = Speculator(log), RecordingObserver(log)
    rounds = SimpleNamespace(words=SimpleNamespace(read=lambda: "the words"))
    observing.hook(speculator, observer, rounds, None)  # type: ignore[arg-type]
    speculator.drafts = None
    with pytest.raises(RuntimeError, match="a round failed"):
        speculator.propose(**call())
    assert log == ["begin", "propose", "decided"]
    assert observer.seen[-1] == "the words"


# --- the entry point ---


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM of an unknown version."""
    for name in ("vllm", "vllm.plugins", "vllm.v1", "vllm.v1.worker", "vllm.v1.worker.worker_base"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm"].__version__ = "0.99.1"  # type: ignore[attr-defined]
    sys.modules["vllm"].plugins = sys.modules["vllm.plugins"]  # type: ignore[attr-defined]
    sys.modules["vllm.v1.worker.worker_base"].WorkerWrapperBase = object  # type: ignore[attr-defined]


def test_observation_alone_needs_a_supported_vllm(
    monkeypatch: pytest.MonkeyPatch, fake_vllm: None, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_OBSERVE", str(tmp_path))
    monkeypatch.setenv("VLLM_DSPARK_OBSERVE_KEY", KEY)
    with pytest.raises(SeamError, match=r"vLLM 0\.99\.1 is not supported"):
        plugin.register()


def test_settings_that_cannot_be_followed_end_the_engine(
    monkeypatch: pytest.MonkeyPatch, fake_vllm: None, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_OBSERVE", str(tmp_path / "gone"))
    monkeypatch.setenv("VLLM_DSPARK_OBSERVE_KEY", KEY)
    with pytest.raises(SettingsError, match="VLLM_DSPARK_OBSERVE: "):
        plugin.register()


def test_an_engine_that_drafts_remotely_unobserved_imports_nothing_of_observation() -> None:
    code = (
        "import sys, types\n"
        "for name in ('vllm', 'vllm.plugins'): sys.modules[name] = types.ModuleType(name)\n"
        "sys.modules['vllm'].__version__ = '0.32.0'; sys.modules['vllm'].plugins = sys.modules['vllm.plugins']\n"
        "from spark_overlay.vllm_seam.plugin import register\n"
        "try: register()\n"
        "except Exception as error: print(type(error).__name__)\n"
        "import spark_overlay.rounds, spark_overlay.simulation.world\n"
        "print([name for name in sys.modules if 'observ' in name and name.startswith('spark')])\n"
        "print('spark_overlay.vllm_seam.install' in sys.modules)\n"
    )
    environ = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "VLLM_DSPARK_REMOTE": "tcp://127.0.0.1:9",
        "VLLM_DSPARK_REMOTE_IDENTITY": "0" * 64,
        "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": "0" * 64,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1:] == ["[]", "True"], done
