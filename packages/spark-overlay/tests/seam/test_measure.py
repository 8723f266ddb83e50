"""What is measured of an engine: storages counted once, layers by whose they are, and only what is really there; and
how the log says it.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.vllm_seam.memory import lines, measure, size_text

PAGE_BYTES, BLOCKS = 96, 5


class Tensor:
    """A tensor of so many two-byte elements in a storage of its own, or in another's."""

    def __init__(self, elements: int, of: "Tensor | None" = None) -> None:
        self._elements, self._owner = elements, of or self

    def untyped_storage(self) -> Any:
        owner = self._owner
        return SimpleNamespace(data_ptr=lambda: id(owner), nbytes=lambda: 2 * owner._elements)

    def numel(self) -> int:
        return self._elements

    def element_size(self) -> int:
        return 2


def module(parameters: list[Tensor], buffers: list[Tensor] | None = None, **more: Any) -> Any:
    return SimpleNamespace(parameters=lambda: parameters, buffers=lambda: buffers or [], **more)


def runner(target: Any, **changes: Any) -> Any:
    """An engine of one layer of the target's, in a cache of BLOCKS pages."""
    spec = SimpleNamespace(page_size_bytes=PAGE_BYTES, block_size=32)
    group = SimpleNamespace(kv_cache_spec=spec, layer_names=["target"])
    made = {
        "model": target,
        "speculator": SimpleNamespace(),
        "kv_caches": [Tensor(BLOCKS * PAGE_BYTES // 2)],
        "kv_cache_config": SimpleNamespace(kv_cache_groups=[group], num_blocks=BLOCKS),
        "vllm_config": SimpleNamespace(
            num_lookahead_tokens=5, cache_config=SimpleNamespace(enable_prefix_caching=True)
        ),
        "speculative_config": SimpleNamespace(num_speculative_tokens=5, max_num_new_slots_for_drafting=4),
        "scheduler_config": SimpleNamespace(max_num_scheduled_tokens=None, max_num_batched_tokens=64),
    }
    return SimpleNamespace(**(made | changes))


def rounds(lead: Any = None) -> Any:
    return SimpleNamespace(lead=lead, words=SimpleNamespace(host_bytes=192, device_bytes=64))


def test_weights_are_counted_once_and_shared_ones_as_the_targets() -> None:
    embedding, own = Tensor(1000), Tensor(30)
    target = module([embedding, Tensor(1000, of=embedding)], [Tensor(7)])
    drafter = SimpleNamespace(model=module([embedding, own]))
    memory = measure(runner(target, speculator=drafter), rounds(), {})
    assert memory["target_parameter_bytes"] == 2 * (1000 + 7)
    assert memory["drafter_parameter_bytes"] == 2 * 30
    assert measure(runner(target), rounds(), {})["drafter_parameter_bytes"] == 0


def test_layers_are_told_apart_by_whose_they_are_also_where_a_group_holds_several_kinds() -> None:
    kinds = {
        "draft one": SimpleNamespace(page_size_bytes=10),
        "draft two": SimpleNamespace(page_size_bytes=20),
    }
    groups = [
        SimpleNamespace(
            kv_cache_spec=SimpleNamespace(page_size_bytes=PAGE_BYTES, block_size=32), layer_names=["a", "b"]
        ),
        SimpleNamespace(
            kv_cache_spec=SimpleNamespace(page_size_bytes=30, block_size=16, kv_cache_specs=kinds),
            layer_names=list(kinds),
        ),
    ]
    cache = Tensor(BLOCKS * PAGE_BYTES)
    memory = measure(
        runner(
            module([]),
            speculator=SimpleNamespace(draft_attn_layer_names=list(kinds)),
            kv_caches=[cache, Tensor(3, of=cache)],
            kv_cache_config=SimpleNamespace(kv_cache_groups=groups, num_blocks=BLOCKS),
        ),
        rounds(),
        {},
    )
    assert {name: found for name, found in memory.items() if name.startswith("kv_")} == {
        "kv_target_layers": 2,
        "kv_draft_layers": 2,
        "kv_target_page_bytes": 2 * PAGE_BYTES,
        "kv_draft_page_bytes": 10 + 20,
        "kv_bytes": 2 * BLOCKS * PAGE_BYTES,
        "kv_block_bytes": 2 * PAGE_BYTES,
        "kv_blocks": BLOCKS,
        "kv_block_tokens": 16,
        "kv_groups": 2,
    }


def test_the_buffer_that_a_target_keeps_for_drafters_is_measured_where_there_is_one() -> None:
    kept = module([], model=SimpleNamespace(_mtp_hidden_buffer=Tensor(4096 * 20480)))
    assert measure(runner(kept), rounds(), {})["mtp_hidden_buffer_bytes"] == 160 << 20
    for other in (module([]), module([], model=SimpleNamespace())):
        assert measure(runner(other), rounds(), {})["mtp_hidden_buffer_bytes"] == 0


def test_only_rank_0_holds_a_ring_and_buffers_to_gather_into() -> None:
    taps = SimpleNamespace(host_bytes=11, device_bytes=12, max_rows=13, row_bytes=14)
    lead = measure(
        runner(module([])), rounds(SimpleNamespace(taps=taps)), {"ring_bytes": 15, "ring_rows": 16}
    )
    follower = measure(runner(module([])), rounds(), {})
    own = {
        "ring_bytes": 15,
        "gather_host_bytes": 11,
        "gather_device_bytes": 12,
        "gather_rows_max": 13,
        "row_bytes": 14,
    }
    assert lead == follower | own
    assert (follower["words_host_bytes"], follower["words_device_bytes"]) == (192, 64)


@pytest.mark.parametrize(
    ("lookahead", "scheduled", "drop", "found"),
    [(5, None, None, (5, 64, 1)), (None, 50, False, (3, 50, 1)), (7, 50, True, (7, 50, 0))],
    ids=["as vLLM says", "a version without lookahead", "the drop is off"],
)
def test_what_the_scheduler_keeps_for_drafts_is_what_it_says(
    lookahead: int | None, scheduled: int | None, drop: bool | None, found: tuple[int, int, int]
) -> None:
    made = runner(module([]))
    made.speculative_config.num_speculative_tokens = 3
    made.scheduler_config.max_num_scheduled_tokens = scheduled
    if lookahead is None:
        del made.vllm_config.num_lookahead_tokens
    else:
        made.vllm_config.num_lookahead_tokens = lookahead
    if drop is not None:
        made.speculative_config.disable_eagle_block_drop = drop
    memory = measure(made, rounds(), {})
    names = ("lookahead_slots", "scheduled_tokens_max", "eagle_block_drop")
    assert tuple(memory[name] for name in names) == found
    assert (memory["reserved_tokens"], memory["prefix_caching"]) == (4, 1)


@pytest.mark.parametrize("said", [False, True])
def test_where_vllm_says_whether_it_drops_a_block_its_word_counts(said: bool) -> None:
    made = runner(module([]))
    made.speculative_config.disable_eagle_block_drop = False
    made.speculative_config.use_eagle_block_drop = lambda: said
    assert measure(made, rounds(), {})["eagle_block_drop"] == int(said)


RECORD = {
    "target_parameter_bytes": 3 << 30,
    "drafter_parameter_bytes": 5 << 19,
    "kv_target_layers": 4,
    "kv_draft_layers": 3,
    "kv_target_page_bytes": 65536,
    "kv_draft_page_bytes": 49152,
    "kv_bytes": 1 << 24,
    "kv_block_bytes": 65536,
    "kv_blocks": 256,
    "kv_block_tokens": 32,
    "kv_groups": 2,
    "ring_bytes": 6 << 20,
    "gather_host_bytes": 1 << 20,
    "gather_device_bytes": 1 << 20,
    "words_host_bytes": 1 << 19,
    "words_device_bytes": 1 << 18,
    "mtp_hidden_buffer_bytes": 160 << 20,
    "lookahead_slots": 5,
    "scheduled_tokens_max": 2048,
    "reserved_tokens": 4,
    "prefix_caching": 1,
    "eagle_block_drop": 1,
}
TARGET = (
    "the target holds 3 GiB of parameters and 4 KV layers, 65536 bytes for 32 tokens; "
    "256 blocks of 65536 bytes in {groups}"
)
KEPT = (
    "kept by vLLM: 5 lookahead slots a request; 2048 scheduled tokens a step, of which each request reserves 4 for "
    "drafting"
)


def test_with_a_local_drafter_the_lines_say_what_it_keeps() -> None:
    assert lines(RECORD, "resilience") == [
        TARGET.format(groups="2 groups"),
        "kept for policy resilience: the local drafter's 2.5 MiB of parameters and 3 KV layers, 49152 bytes for "
        "32 tokens",
        "held for remote drafting: 7.5 MiB on the host, 1.25 MiB on the device",
        KEPT,
        "kept by vLLM: prefix-cache hits drop a trailing block for drafters' sake (on)",
        "kept by vLLM: the target's _mtp_hidden_buffer, 160 MiB, which nothing reads",
    ]


def test_in_capacity_the_lines_say_what_is_not_there_and_nothing_of_what_this_engine_does_not_do() -> None:
    freed = RECORD | {"drafter_parameter_bytes": 0, "kv_draft_layers": 0, "kv_groups": 1}
    other = {"mtp_hidden_buffer_bytes": 0, "prefix_caching": 0}
    assert lines(freed | other, "capacity") == [
        TARGET.format(groups="1 group"),
        "not here: the drafter's weights, graphs and KV cache; 4 KV layers, all the target's; "
        "left here: 0 bytes of drafter parameters",
        "held for remote drafting: 7.5 MiB on the host, 1.25 MiB on the device",
        KEPT,
    ]
    assert lines(freed | {"eagle_block_drop": 0}, "capacity")[4].endswith("for drafters' sake (off)")
    assert "and 3 of a drafter" in lines(RECORD, "capacity")[1], "said where it should not be"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (192, "192 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (2_850_000, "2.718 MiB"),
        ((1 << 30) - 1, "1024 MiB"),
        (38_500_000_000, "35.86 GiB"),
        (5000 << 40, "5000 TiB"),
    ],
)
def test_sizes_are_in_a_unit_that_people_read(size: int, text: str) -> None:
    assert size_text(size) == text
