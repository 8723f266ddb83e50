"""An identity names a drafter: it changes with every byte that drafting uses, and with nothing else."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import (
    DRAFTER_CONFIG,
    TARGET_CONFIG,
    drafter_shapes,
    filled,
    target_shapes,
    write_folder,
    write_pair,
)
from ofl.contract.identity import canonical_json, target_binding
from x86_worker.checkpoint import IdentityRecord, read_drafter, read_identity


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_pair(tmp_path)


def tensors_sha256(tensors: dict[str, Any]) -> bytes:
    """The digest by its definition: a prefix, then each tensor's head with its length, then its bytes."""
    digest = hashlib.sha256(b"ofl-tensors-v1\0")
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        head = canonical_json([name, dtype, list(shape), len(data)])
        digest.update(len(head).to_bytes(4, "little") + head + data)
    return digest.digest()


def test_the_identity_is_the_digest_of_all_tensors_the_target_and_the_configuration(
    pair: tuple[Path, Path],
) -> None:
    tensors = {name: filled(name, shape) for name, shape in drafter_shapes().items()}
    tensors["embed_tokens.weight"] = filled("model.embed_tokens.weight", (10, 4))
    tensors["lm_head.weight"] = filled("lm_head.weight", (10, 4))
    binding = target_binding(vocabulary=10, hidden_size=4, num_hidden_layers=3, tokenizer_sha256=None)
    config = canonical_json(read_drafter(*pair).config.canonical())
    whole = hashlib.sha256(b"ofl-dspark-identity-v1\0" + tensors_sha256(tensors) + binding + config).digest()
    markov = {name: tensor for name, tensor in tensors.items() if name.startswith("markov_head.")}
    record = read_identity(*pair)
    assert record.identity == whole
    assert record.markov_identity == tensors_sha256(markov)
    assert record.target_binding == binding
    assert record.tensor_count == len(tensors)
    assert record.tensor_bytes == sum(len(data) for _, _, data in tensors.values())


def test_the_record_says_what_hello_compares_and_is_plain_json(pair: tuple[Path, Path]) -> None:
    (pair[1] / "tokenizer.json").write_text("{}")
    record = read_identity(*pair)
    shown = json.loads(json.dumps(record.to_json()))
    assert shown["identity"] == record.identity.hex()
    assert shown["tokenizer_sha256"] == hashlib.sha256(b"{}").hexdigest()
    facts = (
        "vocabulary",
        "block_length",
        "window",
        "max_positions",
        "tap_count",
        "target_layer_ids",
        "dtype",
    )
    assert [shown[key] for key in facts] == [10, 5, 0, 64, 2, [0, 2], "bfloat16"]
    assert (shown["row_elements_raw"], shown["row_elements_projected"]) == (8, 4)


@pytest.mark.parametrize("name", sorted(drafter_shapes()))
def test_one_changed_byte_of_any_tensor_changes_the_identity(pair: tuple[Path, Path], name: str) -> None:
    before = read_identity(*pair)
    dtype, shape, data = filled(name, drafter_shapes()[name])
    changed = {name.replace(".", "__"): (dtype, shape, data[:-1] + bytes([data[-1] ^ 1]))}
    write_folder(pair[0], DRAFTER_CONFIG, drafter_shapes(), **changed)
    after = read_identity(*pair)
    assert after.identity != before.identity
    assert (after.markov_identity != before.markov_identity) == name.startswith("markov_head.")


def changed_target(pair: tuple[Path, Path], config: dict[str, Any], **tensors: Any) -> IdentityRecord:
    write_folder(pair[1], TARGET_CONFIG | config, target_shapes(), **tensors)
    return read_identity(*pair)


def test_the_targets_borrowed_tensors_and_binding_are_part_of_it_and_its_other_tensors_are_not(
    pair: tuple[Path, Path],
) -> None:
    before = read_identity(*pair)
    assert changed_target(pair, {}, model__norm__weight=filled("other", (4,))) == before
    head = changed_target(pair, {}, lm_head__weight=filled("other", (10, 4)))
    assert head.identity != before.identity
    assert head.target_binding == before.target_binding
    deeper = changed_target(pair, {"num_hidden_layers": 4})
    assert deeper.target_binding != before.target_binding
    assert deeper.identity != before.identity
    changed_target(pair, {})
    (pair[1] / "tokenizer.json").write_text("{}")
    assert read_identity(*pair).target_binding != before.target_binding


def test_a_key_that_changes_results_changes_it_and_one_that_does_not_does_not(
    pair: tuple[Path, Path],
) -> None:
    before = read_identity(*pair)
    for changes, same in (
        ({"rope_theta": 5.0}, False),
        ({"is_causal": True}, False),
        ({"use_cache": False}, True),
    ):
        write_folder(pair[0], DRAFTER_CONFIG | changes, drafter_shapes())
        assert (read_identity(*pair).identity == before.identity) == same
