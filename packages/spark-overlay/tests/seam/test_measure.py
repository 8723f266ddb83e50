"""What is measured of an engine: storages counted once, layers by whose they are, and only what is really there."""

from types import SimpleNamespace
from typing import Any

import pytest
from spark_overlay.vllm_seam.memory import measure

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
