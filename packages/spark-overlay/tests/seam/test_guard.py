"""The choke point: no engine without the remote speculator passes it; one that has it is announced once."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.refusal import forget_refusal, read_refusal
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.guard import guard

Config = Callable[..., Any]


class Remote:
    """Stands for the remote speculator: the guard knows it by its class's mark."""

    drafts_remotely = True
    policy_name = "shadow"

    def __init__(self) -> None:
        self.calls: list[object] = []

    def engine_is_up(self, runner: object) -> None:
        self.calls.append(runner)

    def close(self) -> None:
        self.calls.append("close")


class Stock:
    """Stands for vLLM's own speculator."""


class Worker:
    """A worker whose model runner came to hold the speculator that the test gives."""

    def __init__(self, speculator: object) -> None:
        self.model_runner = SimpleNamespace(speculator=speculator)
        self.warmed_up = 0
        self.shut_down = 0

    def compile_or_warm_up_model(self) -> str:
        self.warmed_up += 1
        return "times"

    def shutdown(self) -> None:
        self.shut_down += 1


def wrapper_class() -> type:
    """Built as vLLM's WorkerWrapperBase is: it hands unknown names to its worker, also when it has none."""

    class Wrapper:
        def __init__(self, vllm_config: object, speculator: object) -> None:
            self.vllm_config = vllm_config
            self.speculator = speculator
            self.devices = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.worker, name)

        def init_device(self) -> None:
            self.devices += 1
            self.worker = Worker(self.speculator)

        def shutdown(self) -> None:
            if vars(self).get("worker") is not None:
                self.worker.shutdown()

    guard(Wrapper, "shadow")
    return Wrapper


def test_an_engine_with_the_remote_speculator_starts_and_is_announced_after_its_warm_up(
    config: Config,
) -> None:
    remote = Remote()
    wrapped = wrapper_class()(config(), remote)
    wrapped.init_device()
    assert remote.calls == []
    assert wrapped.compile_or_warm_up_model() == "times"
    assert wrapped.worker.warmed_up == 1
    assert remote.calls == [wrapped.worker.model_runner]


@pytest.mark.parametrize(("held", "named"), [(None, "no speculator"), (Stock(), "a Stock")])
def test_an_engine_whose_runner_never_asked_for_our_speculator_does_not_start(
    config: Config, held: object, named: str
) -> None:
    wrapped = wrapper_class()(config(), held)
    with pytest.raises(SeamError, match=f"holds {named} instead"):
        wrapped.init_device()


def test_a_speculator_that_was_swapped_after_the_device_is_noticed_before_the_engine_serves(
    config: Config,
) -> None:
    wrapped = wrapper_class()(config(), Remote())
    wrapped.init_device()
    wrapped.worker.model_runner.speculator = Stock()
    with pytest.raises(SeamError, match="a Stock"):
        wrapped.compile_or_warm_up_model()


def test_a_refused_configuration_touches_no_device(config: Config) -> None:
    wrapped = wrapper_class()(config(use_v2_model_runner=False), Remote())
    with pytest.raises(SeamError, match="VLLM_USE_V2_MODEL_RUNNER"):
        wrapped.init_device()
    assert wrapped.devices == 0


@pytest.fixture
def ready_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the launcher of this start, s1, looks."""
    path = tmp_path / "ready.json"
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_READY_FILE", str(path))
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_START_ID", "s1")
    return path


def test_a_refusal_before_or_after_the_device_is_left_for_the_launcher(
    config: Config, ready_file: Path
) -> None:
    with pytest.raises(SeamError):
        wrapper_class()(config(use_v2_model_runner=False), Remote()).init_device()
    assert read_refusal(ready_file, "s1").startswith("VLLM_USE_V2_MODEL_RUNNER must be 1")
    forget_refusal(ready_file)
    with pytest.raises(SeamError):
        wrapper_class()(config(), Stock()).init_device()
    assert "holds a Stock instead" in read_refusal(ready_file, "s1")


def test_what_keeps_the_drafter_from_being_up_is_left_for_the_launcher_with_its_kind(
    config: Config, ready_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Remote, runner: object) -> None:
        raise OSError("nobody there")

    monkeypatch.setattr(Remote, "engine_is_up", fails)
    wrapped = wrapper_class()(config(), Remote())
    wrapped.init_device()
    with pytest.raises(OSError, match="nobody there"):
        wrapped.compile_or_warm_up_model()
    assert read_refusal(ready_file, "s1") == "OSError: nobody there"


def test_the_engines_own_failures_keep_their_words_to_themselves(
    config: Config, ready_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Worker) -> str:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Worker, "compile_or_warm_up_model", fails)
    wrapped = wrapper_class()(config(), Remote())
    wrapped.init_device()
    with pytest.raises(RuntimeError, match="out of memory"):
        wrapped.compile_or_warm_up_model()
    assert read_refusal(ready_file, "s1") == ""


def test_a_refusal_that_cannot_be_left_is_raised_all_the_same(
    config: Config, ready_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_READY_FILE", str(ready_file / "nowhere" / "ready.json"))
    with pytest.raises(SeamError, match="VLLM_USE_V2_MODEL_RUNNER"):
        wrapper_class()(config(use_v2_model_runner=False), Remote()).init_device()


def test_shutdown_ends_the_drafter_and_then_the_worker(config: Config) -> None:
    remote = Remote()
    wrapped = wrapper_class()(config(), remote)
    wrapped.init_device()
    wrapped.shutdown()
    assert remote.calls == ["close"]
    assert wrapped.worker.shut_down == 1


def test_shutdown_of_an_engine_that_never_had_a_worker_or_speculator_passes(config: Config) -> None:
    wrapped = wrapper_class()(config(), Stock())
    wrapped.shutdown()
    with pytest.raises(SeamError):
        wrapped.init_device()
    wrapped.shutdown()
    assert wrapped.worker.shut_down == 1


def test_guarding_twice_wraps_once(config: Config) -> None:
    remote = Remote()
    cls = wrapper_class()
    guard(cls, "shadow")
    wrapped = cls(config(), remote)
    wrapped.init_device()
    wrapped.compile_or_warm_up_model()
    assert len(remote.calls) == 1


def test_a_wrapper_with_a_warm_up_of_its_own_keeps_it(config: Config) -> None:
    class Own:
        def __init__(self) -> None:
            self.vllm_config = config()
            self.own = 0

        def init_device(self) -> None:
            self.worker = Worker(Remote())

        def compile_or_warm_up_model(self, factor: int) -> int:
            self.own += factor
            return self.own

        def shutdown(self) -> None: ...

    guard(Own, "shadow")
    wrapped: Any = Own()
    wrapped.init_device()
    assert wrapped.compile_or_warm_up_model(factor=3) == 3
    assert wrapped.worker.warmed_up == 0


def test_a_speculator_of_another_policy_than_the_one_asked_for_is_refused(config: Config) -> None:
    wrapped = wrapper_class()(config(), Remote())
    wrapped.init_device()
    guard(type(wrapped), "resilience")  # a later engine of the same process asks anew
    with pytest.raises(
        SeamError, match="policy 'resilience' was asked for, but the speculator's is 'shadow'"
    ):
        wrapped.compile_or_warm_up_model()


def test_the_policy_decides_what_is_refused_before_a_device_is_touched(config: Config) -> None:
    wrapped = wrapper_class()(config(speculative_config__disable_eagle_block_drop=True), Remote())
    with pytest.raises(SeamError, match="disable_eagle_block_drop"):
        wrapped.init_device()
    assert wrapped.devices == 0
