"""Ranks that are not set alike do not start; and where one cannot draft remotely, none does."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.decision import DecisionLayout
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.ranks import Alone, check_alike, ranks_of
from spark_overlay.vllm_seam.startup import agree, on_up, record, report, worker_state

SETTINGS = {
    "VLLM_DSPARK_REMOTE": "tcp://127.0.0.1:9",
    "VLLM_DSPARK_REMOTE_IDENTITY": "0" * 64,
    "VLLM_DSPARK_REMOTE_MARKOV_IDENTITY": "0" * 64,
}
MEMORY = {
    "target_parameter_bytes": 3 << 30,
    "drafter_parameter_bytes": 1 << 20,
    "kv_target_layers": 4,
    "kv_draft_layers": 0,
    "kv_target_page_bytes": 65536,
    "kv_draft_page_bytes": 0,
    "kv_bytes": 1 << 24,
    "kv_block_bytes": 65536,
    "kv_blocks": 256,
    "kv_block_tokens": 32,
    "kv_groups": 1,
    "words_host_bytes": 192,
    "words_device_bytes": 192,
    "mtp_hidden_buffer_bytes": 0,
    "lookahead_slots": 5,
    "scheduled_tokens_max": 64,
    "reserved_tokens": 4,
    "prefix_caching": 0,
    "eagle_block_drop": 1,
}


class Group:
    """Ranks in threads, which exchange texts as vLLM's group does."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._texts = [""] * size
        self._barrier = threading.Barrier(size, timeout=10)

    def exchange(self, rank: int, text: str) -> list[str]:
        self._texts[rank] = text
        self._barrier.wait()
        found = list(self._texts)
        self._barrier.wait()
        return found

    def each(self, run: Any) -> list[Any]:
        """run(ranks) on every rank; what it returned or raised."""
        results: list[Any] = [None] * self.size

        def one(rank: int) -> None:
            ranks = SimpleNamespace(
                rank=rank,
                size=self.size,
                first_here=rank == 0,
                gather=lambda text: self.exchange(rank, text),
            )
            try:
                results[rank] = run(ranks)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return results


class Rounds:
    """Stands for one rank's rounds: whether the broadcast of the start arrives."""

    lead = None

    def __init__(self, ranks: Any, proves: bool = True) -> None:
        self.ranks, self._proves = ranks, proves

    def prove(self) -> bool:
        return self._proves


def test_an_engine_of_one_rank_needs_no_group() -> None:
    alone = ranks_of(SimpleNamespace(parallel_config=SimpleNamespace(tensor_parallel_size=1)))
    assert isinstance(alone, Alone)
    assert alone.gather("said") == ["said"]
    check_alike(alone, {"VLLM_DSPARK_REMOTE_POLICY": "shadow"})


def test_ranks_that_are_set_alike_start() -> None:
    assert Group(3).each(lambda ranks: check_alike(ranks, {"a": "1", "b": "2"})) == [None] * 3


def test_ranks_that_differ_are_all_refused_by_the_names_of_what_differs() -> None:
    def start(ranks: Any) -> None:
        policy = "shadow" if ranks.rank == 1 else "capacity"
        check_alike(ranks, {"VLLM_DSPARK_REMOTE_POLICY": policy, "num_speculative_tokens": "5"})

    for refused in Group(2).each(start):
        assert isinstance(refused, SeamError)
        assert "VLLM_DSPARK_REMOTE_POLICY is 'capacity' on rank 0, 'shadow' on rank 1" in str(refused)
        assert "num_speculative_tokens" not in str(refused)


def test_a_rank_that_does_not_know_a_setting_differs_in_it() -> None:
    def start(ranks: Any) -> None:
        check_alike(ranks, {"a": "1"} if ranks.rank else {"a": "1", "new": "2"})

    for refused in Group(2).each(start):
        assert "new is '2' on rank 0, None on rank 1" in str(refused)


def test_what_is_compared_fits_the_message_that_carries_it() -> None:
    from spark_overlay.vllm_seam.ranks import TEXT_BYTES
    from spark_overlay.vllm_seam.startup import SAID_MAX

    assert 4 * SAID_MAX <= TEXT_BYTES  # a character has at most four bytes
    assert len(json.dumps({"VLLM_DSPARK_REMOTE_SHADOW_USE": "remote"})) * 10 < TEXT_BYTES


def test_where_one_rank_has_a_problem_none_serves() -> None:
    def start(ranks: Any) -> None:
        agree(Rounds(ranks), OSError("no worker") if ranks.rank == 0 else None)  # type: ignore[arg-type]

    own, other = Group(2).each(start)
    assert (type(own), str(own)) == (OSError, "no worker")
    assert isinstance(other, SeamError)
    assert "tensor-parallel rank 0 cannot draft remotely: no worker" in str(other)


def test_a_problem_without_words_of_its_own_is_told_by_its_kind() -> None:
    def start(ranks: Any) -> None:
        agree(Rounds(ranks), AssertionError() if ranks.rank == 0 else None)  # type: ignore[arg-type]

    own, other = Group(2).each(start)
    assert isinstance(own, AssertionError)
    assert "tensor-parallel rank 0 cannot draft remotely: AssertionError" in str(other)


def test_the_broadcast_is_proved_only_among_ranks_that_have_all_come() -> None:
    """A broadcast waits for an absent rank as long as its library likes; the exchange of texts has a bound."""
    proved = []

    class Proving(Rounds):
        def prove(self) -> bool:
            proved.append(self.ranks.rank)
            return True

    def start(ranks: Any) -> None:
        def nobody_else(text: str) -> list[str]:
            raise SeamError("not every tensor-parallel rank answered")

        ranks.gather = nobody_else
        agree(Proving(ranks), None)  # type: ignore[arg-type]

    assert [str(refused) for refused in Group(2).each(start)] == [
        "spark-overlay: not every tensor-parallel rank answered"
    ] * 2
    assert proved == []


def test_where_one_rank_does_not_hear_rank_0_none_serves() -> None:
    for refused in Group(2).each(lambda ranks: agree(Rounds(ranks, proves=ranks.rank == 0), None)):  # type: ignore[arg-type]
        assert "rank 1 cannot draft remotely: it does not read what rank 0 sends" in str(refused)


class Drafter:
    """Stands for rank 0's."""

    memory: Any = None

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def start(self, wait_ready_s: float) -> bool:
        if self._fails:
            raise OSError("nobody there")
        return True

    def stats(self) -> dict[str, Any]:
        return {"connected": True, "disabled": "", "rank0_buffers": {"ring_bytes": 7}}


@pytest.mark.parametrize("fails", [False, True])
def test_the_record_is_written_by_rank_0_once_all_ranks_hold_theirs(tmp_path: Any, fails: bool) -> None:
    path = tmp_path / "ready.json"
    settings = Settings.from_environ(SETTINGS | {"VLLM_DSPARK_REMOTE_READY_FILE": str(path)})
    assert settings is not None
    drafter = Drafter(fails)

    def start(ranks: Any) -> None:
        rounds: Any = Rounds(ranks)
        words = SimpleNamespace(host_bytes=192, device_bytes=0, layout=DecisionLayout(4, 5))
        rounds.words = words
        if ranks.rank == 0:
            taps = SimpleNamespace(host_bytes=1, device_bytes=2, max_rows=3, row_bytes=4)
            rounds.lead = SimpleNamespace(drafter=drafter, taps=taps, attach=lambda states: None)
        on_up(settings, rounds, "0.32.0")(runner())

    results = Group(2).each(start)
    if fails:
        assert [type(result) for result in results] == [OSError, SeamError]
        assert not path.exists()
    else:
        assert results == [None, None]
        assert json.loads(path.read_text())["policy"] == "capacity"
        assert json.loads(path.read_text())["worker"] == "connected"
        assert drafter.memory["ring_bytes"] == 7
        assert drafter.memory["kv_draft_layers"] == 0


@pytest.mark.parametrize(("fails", "first_here"), [(False, True), (False, False), (True, True)])
def test_on_another_host_the_first_rank_writes_its_hosts_record_once_all_ranks_hold_theirs(
    tmp_path: Any, fails: bool, first_here: bool
) -> None:
    paths = [tmp_path / f"host{rank}.json" for rank in range(2)]

    def start(ranks: Any) -> None:
        given = {"VLLM_DSPARK_REMOTE_READY_FILE": str(paths[ranks.rank]), "VLLM_DSPARK_REMOTE_START_ID": "s7"}
        settings = Settings.from_environ(SETTINGS | given)
        assert settings is not None
        if ranks.rank == 0:
            agree(Rounds(ranks), OSError("nobody there") if fails else None)  # type: ignore[arg-type]
            return
        ranks.first_here = first_here
        rounds: Any = Rounds(ranks)
        on_up(settings, rounds, "0.32.0")(runner())

    results = Group(2).each(start)
    assert [type(result) for result in results] == ([OSError, SeamError] if fails else [type(None)] * 2)
    assert paths[1].exists() is (first_here and not fails)
    if paths[1].exists():
        found = json.loads(paths[1].read_text())
        assert (found["start_id"], found["policy"]) == ("s7", "capacity")
        assert found["worker"] == "asked by rank 0 alone, on another host"


@pytest.mark.parametrize(
    ("connected", "disabled", "last_failure", "told"),
    [
        (True, "", "an older one", "connected"),
        (False, "", "nobody listens", "not there yet: nobody listens"),
        (False, "", "", "not there yet: it has not answered so far"),
        (False, "identity", "nobody listens", "not used in this run: identity"),
    ],
)
def test_the_record_says_what_the_worker_is(
    connected: bool, disabled: str, last_failure: str, told: str
) -> None:
    stats = {"connected": connected, "disabled": disabled, "last_failure": last_failure}
    assert worker_state(stats) == told


def test_a_workers_own_words_begin_no_line_of_the_record_and_have_a_bound() -> None:
    settings = Settings.from_environ(SETTINGS)
    assert settings is not None
    stats = {"connected": False, "disabled": "\x1b[2J\n" + "x" * 9999, "last_failure": ""}
    found = record(settings, "0.32.0", worker_state(stats)).worker
    assert found.isprintable()
    assert len(found) <= 1000


def runner() -> Any:
    """An engine's model runner without tensors: one group of two layers in three blocks."""
    spec = SimpleNamespace(page_size_bytes=64, block_size=32)
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=["one", "two"])
    module = SimpleNamespace(parameters=list, buffers=list)
    return SimpleNamespace(
        req_states=None,
        model=module,
        speculator=SimpleNamespace(),
        kv_caches=[],
        kv_cache_config=SimpleNamespace(kv_cache_groups=[group], num_blocks=3),
        vllm_config=SimpleNamespace(
            num_lookahead_tokens=5,
            cache_config=SimpleNamespace(enable_prefix_caching=True),
            scheduler_config=SimpleNamespace(async_scheduling=True),
        ),
        speculative_config=SimpleNamespace(num_speculative_tokens=5, max_num_new_slots_for_drafting=4),
        scheduler_config=SimpleNamespace(max_num_scheduled_tokens=None, max_num_batched_tokens=64),
    )


@pytest.mark.parametrize(
    ("policy", "more", "words"),
    [
        ("capacity", {}, ["not here", "4 KV layers, all the target's", "no drafts"]),
        (
            "resilience",
            {"kv_draft_layers": 3},
            ["kept for policy resilience", "1 MiB", "3 KV layers", "local drafts"],
        ),
        ("shadow", {}, ["policy shadow (verified: local drafts), for 2 ranks"]),
        ("capacity", {"prefix_caching": 1}, ["drop a trailing block for drafters' sake (on)"]),
        (
            "capacity",
            {"mtp_hidden_buffer_bytes": 160 << 20},
            ["_mtp_hidden_buffer, 160 MiB, which nothing reads"],
        ),
    ],
)
def test_the_log_says_what_is_freed_and_kept(policy: str, more: dict[str, int], words: list[str]) -> None:
    settings = Settings.from_environ(SETTINGS | {"VLLM_DSPARK_REMOTE_POLICY": policy})
    assert settings is not None
    said = "\n".join(report(settings, 2, MEMORY | more, {"connected": False, "disabled": ""}))
    for word in words:
        assert word in said
