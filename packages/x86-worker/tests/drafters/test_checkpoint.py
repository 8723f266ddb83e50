"""Folders are read as vLLM would load them, and everything wrong in them is named with its file."""

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import (
    DRAFTER_CONFIG,
    TARGET_CONFIG,
    Shapes,
    drafter_shapes,
    filled,
    int64,
    target_shapes,
    write_folder,
    write_pair,
    write_safetensors,
)
from x86_worker.checkpoint import CheckpointError, read_drafter, read_safetensors


def refusal(drafter: Path, target: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_drafter(drafter, target)
    return str(caught.value)


def test_a_drafter_borrows_embedding_and_head_from_its_target(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    checkpoint = read_drafter(drafter, target)
    assert set(checkpoint.tensors) == {*drafter_shapes(), "embed_tokens.weight", "lm_head.weight"}
    assert list(checkpoint.tensors) == sorted(checkpoint.tensors)
    embedding = checkpoint.tensors["embed_tokens.weight"]
    assert embedding.file == target / "model.safetensors"
    assert bytes(embedding.data) == filled("model.embed_tokens.weight", (10, 4))[2]
    assert checkpoint.has_confidence
    assert checkpoint.draft_rows == 10


def test_a_tied_target_gives_its_embedding_as_head(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    write_folder(target, TARGET_CONFIG | {"tie_word_embeddings": True}, target_shapes())
    tensors = read_drafter(drafter, target).tensors
    assert bytes(tensors["lm_head.weight"].data) == bytes(tensors["embed_tokens.weight"].data)


def test_a_drafter_with_its_own_embedding_and_head_needs_none_of_its_targets_weights(tmp_path: Path) -> None:
    own: Shapes = {"embed_tokens.weight": (10, 4), "lm_head.weight": (10, 4)}
    drafter = write_folder(tmp_path / "drafter", DRAFTER_CONFIG, drafter_shapes() | own)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(TARGET_CONFIG))
    tensors = read_drafter(drafter, tmp_path / "target").tensors
    assert tensors["lm_head.weight"].file == drafter / "model.safetensors"


def test_a_multimodal_target_keeps_its_sizes_under_text_config(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    inner = {key: TARGET_CONFIG[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers")}
    shapes: Shapes = {
        "language_model.model.embed_tokens.weight": (10, 4),
        "language_model.lm_head.weight": (10, 4),
    }
    plain = read_drafter(drafter, target).target
    write_folder(target, {"text_config": inner}, shapes)
    assert read_drafter(drafter, target).target == plain


def test_tensors_may_carry_a_model_prefix_and_training_only_ones_are_passed_over(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    plain = {name: bytes(tensor.data) for name, tensor in read_drafter(drafter, target).tensors.items()}
    whole = {f"model.{name}": filled(name, shape) for name, shape in drafter_shapes().items()}
    whole |= {"t2d": int64(1, 2), "model.mask_embedding": filled("mask", (4,))}
    write_safetensors(drafter / "model.safetensors", whole)
    prefixed = read_drafter(drafter, target).tensors
    assert {name: bytes(tensor.data) for name, tensor in prefixed.items()} == plain


def test_shards_are_the_files_that_the_index_names(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    plain = read_drafter(drafter, target).tensors
    (drafter / "model.safetensors").unlink()
    names = list(drafter_shapes())
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        write_safetensors(drafter / file, {name: filled(name, drafter_shapes()[name]) for name in part})
        weight_map |= dict.fromkeys(part, file)
    write_safetensors(drafter / "consolidated.safetensors", {"other": filled("other", (1,))})
    index = drafter / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    sharded = read_drafter(drafter, target).tensors
    assert {name: bytes(t.data) for name, t in sharded.items()} == {
        n: bytes(t.data) for n, t in plain.items()
    }
    index.write_text(json.dumps({"weight_map": weight_map | {"x": "gone.safetensors"}}))
    assert refusal(drafter, target) == f"{index}: weight_map names gone.safetensors, which is missing"
    index.write_text(json.dumps({"weight_map": {"x": "../gone.safetensors"}}))
    assert "which is not a file of the folder" in refusal(drafter, target)


def test_a_confidence_head_is_used_only_where_it_is_enabled_and_there(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path, enable_confidence_head=False)
    checkpoint = read_drafter(drafter, target)
    assert not checkpoint.has_confidence
    assert not [name for name in checkpoint.tensors if name.startswith("confidence_head.")]
    without = {name: shape for name, shape in drafter_shapes().items() if "confidence" not in name}
    write_folder(drafter, DRAFTER_CONFIG, without)
    assert not read_drafter(drafter, target).has_confidence


def reduced(tmp_path: Path, d2t: Any = None, **changes: Any) -> tuple[Path, Path]:
    """A pair whose drafter has 6 of the target's 10 ids."""
    _, target = write_pair(tmp_path)
    shapes = drafter_shapes() | {"markov_head.markov_w2.weight": (6, 3), "lm_head.weight": (6, 4)}
    tensors = {} if d2t is None else {"d2t": d2t}
    config = DRAFTER_CONFIG | {"draft_vocab_size": 6} | changes
    return write_folder(tmp_path / "drafter", config, shapes, **tensors), target


def test_a_reduced_vocabulary_needs_its_head_and_its_map_within_the_target(tmp_path: Path) -> None:
    checkpoint = read_drafter(*reduced(tmp_path, int64(0, 0, 1, 1, 4, 4)))
    assert checkpoint.draft_rows == 6
    drafter, target = reduced(tmp_path)
    assert refusal(drafter, target).endswith("needs a d2t tensor, since draft_vocab_size is reduced")
    assert "maps draft id 5 to 10, outside the target's vocabulary of 10" in refusal(
        *reduced(tmp_path, int64(0, 0, 1, 1, 4, 5))
    )
    assert "maps draft id 0 to -1" in refusal(*reduced(tmp_path, int64(-1, 0, 1, 1, 4, 4)))
    assert "tensor d2t has shape [5], not [6]" in refusal(*reduced(tmp_path, int64(0, 0, 1, 1, 4)))
    write_folder(
        drafter, DRAFTER_CONFIG | {"draft_vocab_size": 6}, drafter_shapes(), d2t=int64(0, 0, 1, 1, 4, 4)
    )
    assert "needs its own lm_head.weight" in refusal(drafter, target)


def test_a_map_without_a_reduced_vocabulary_is_refused(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    write_folder(drafter, DRAFTER_CONFIG, drafter_shapes(), d2t=int64(*[0] * 10))
    assert refusal(drafter, target).endswith("tensor d2t without a reduced draft_vocab_size")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 9, "mask_token_id": 8}, "vocab_size is 9, below the target's 10"),
        ({"vocab_size": 12}, "needs its own embed_tokens.weight"),
        ({"target_layer_ids": [0, 3]}, "target_layer_ids name layer 3, and the target has 3 layers"),
        ({"markov_rank": 2}, "tensor markov_head.markov_w1.weight has shape [10, 3], not [10, 2]"),
        ({"attention_bias": True}, "tensor layers.0.self_attn.q_proj.bias is missing"),
        ({"num_hidden_layers": 1}, "is none of a Qwen3-DSpark drafter with this config.json"),
        ({"num_hidden_layers": 3}, "tensor layers.2.input_layernorm.weight is missing"),
    ],
)
def test_a_configuration_that_its_tensors_contradict_is_refused(
    tmp_path: Path, changes: Any, message: str
) -> None:
    assert message in refusal(*write_pair(tmp_path, **changes))


def test_a_tensor_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    write_folder(drafter, DRAFTER_CONFIG, drafter_shapes(), norm__weight=filled("norm", (4,), "F8_E4M3"))
    assert "model.safetensors: tensor norm.weight is F8_E4M3, not one of F32, BF16, F16" in refusal(
        drafter, target
    )


def test_missing_files_are_named(tmp_path: Path) -> None:
    drafter, target = write_pair(tmp_path)
    (target / "model.safetensors").unlink()
    assert refusal(drafter, target) == f"{target}: holds no *.safetensors file"
    (target / "config.json").unlink()
    assert refusal(drafter, target).startswith(f"{target}/config.json: cannot be read (No such file")
    (drafter / "config.json").write_text("{")
    assert refusal(drafter, target).startswith(f"{drafter}/config.json: is not JSON")
    (drafter / "config.json").write_text("[]")
    assert refusal(drafter, target) == f"{drafter}/config.json: is not a JSON object"


def good_file(path: Path) -> bytes:
    write_safetensors(path, {"a": filled("a", (2, 3)), "b": filled("b", (4,))})
    return path.read_bytes()


def with_header(data: bytes, change: Any) -> bytes:
    """The same body under a changed header."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    text = json.dumps(change(header) or header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d[:7], "7 bytes are too few"),
        (lambda d: b"", "0 bytes are too few"),
        (lambda d: d[:-1], "tensor b ends 1 bytes after the file does"),
        (lambda d: d + b"x", "1 bytes follow the last tensor"),
        (lambda d: (1 << 40).to_bytes(8, "little") + d[8:], "does not fit in 1"),
        (lambda d: d[:8] + b"!" + d[9:], "the header is not JSON"),
        (lambda d: d.replace(b'"b"', b'"a"'), "the header names something twice"),
        (lambda d: with_header(d, lambda h: [1]), "the header is not a JSON object"),
        (lambda d: with_header(d, lambda h: h["a"].update(dtype="F4")), "tensor a has dtype F4"),
        (
            lambda d: with_header(d, lambda h: h["a"].update(shape=[2, 2])),
            "tensor a of shape [2, 2] BF16 cannot take 12",
        ),
        (lambda d: with_header(d, lambda h: h["a"].update(shape=[-2, -3])), "tensor a lacks a proper"),
        (lambda d: with_header(d, lambda h: h["a"].update(data_offsets=None)), "tensor a lacks a proper"),
        (
            lambda d: with_header(d, lambda h: h["b"].update(data_offsets=[4, 12])),
            "tensor b starts at 4 where 12 follows",
        ),
    ],
)
def test_a_damaged_file_is_refused_by_what_is_wrong(tmp_path: Path, damage: Any, message: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(damage(good_file(path)))
    with pytest.raises(CheckpointError) as caught:
        read_safetensors(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    data = good_file(path)
    tensors = read_safetensors(path)
    path.write_bytes(data[:-2])
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        _ = tensors["b"].data
    with pytest.raises(CheckpointError, match="changed while it was being read"):
        _ = tensors["a"].data


def test_a_file_that_is_replaced_gives_what_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    good_file(path)
    tensors = read_safetensors(path)
    write_safetensors(tmp_path / "new", {"a": filled("z", (2, 3))})
    (tmp_path / "new").rename(path)
    assert bytes(tensors["a"].data) == filled("a", (2, 3))[2]


def test_a_whole_file_gives_its_tensors_as_they_are(tmp_path: Path) -> None:
    good_file(tmp_path / "x.safetensors")
    tensors = read_safetensors(tmp_path / "x.safetensors")
    assert {name: (t.dtype, t.shape, bytes(t.data)) for name, t in tensors.items()} == {
        "a": filled("a", (2, 3)),
        "b": filled("b", (4,)),
    }
