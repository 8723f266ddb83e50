"""The committed pair is whole, small enough, and of the shapes that its training settings say."""

import json
import struct
from pathlib import Path

import pytest

from demo.training import export
from demo.training.settings import BLOCK_TOKENS, MASK_ID, Settings

SETTINGS = Settings()


def _tensors(path: Path) -> dict[str, tuple[str, list[int]]]:
    """dtype and shape of each tensor, from the header of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}


def test_every_file_has_the_digest_the_manifest_gives() -> None:
    assert export.check_manifest() == []


def test_a_changed_a_missing_and_an_added_file_are_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    export.write_manifest(tmp_path)
    assert export.check_manifest(tmp_path) == []
    (tmp_path / "one").write_text("changed")
    (tmp_path / "two").unlink()
    (tmp_path / "three").write_text("new")
    assert export.check_manifest(tmp_path) == [
        "three is not in the manifest",
        "one differs from its digest",
        "two is missing",
    ]


def test_a_pair_beyond_the_size_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(export.BYTES_MAX + 1))
    with pytest.raises(ValueError, match="8000001 bytes, more than 8000000"):
        export.write_manifest(tmp_path)


def test_the_pair_takes_less_than_eight_megabytes() -> None:
    total = sum(path.stat().st_size for path in export.PAIR.rglob("*") if path.is_file())
    assert total < 8_000_000


def test_weights_are_readable_by_everyone() -> None:
    for path in export.PAIR.rglob("*.safetensors"):
        assert path.stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize("role", ["target", "drafter"])
def test_configuration_is_the_one_the_settings_give(role: str) -> None:
    expected = {"target": export.target_config, "drafter": export.drafter_config}[role](SETTINGS)
    assert json.loads((export.PAIR / role / "config.json").read_text()) == expected


def test_drafter_slides_and_reads_the_target_it_is_shipped_with() -> None:
    target, drafter = (
        json.loads((export.PAIR / role / "config.json").read_text()) for role in ("target", "drafter")
    )
    assert drafter["layer_types"] == ["sliding_attention"] * 3
    assert (drafter["use_sliding_window"], drafter["sliding_window"]) == (True, 128)
    assert (drafter["block_size"], drafter["mask_token_id"]) == (BLOCK_TOKENS, MASK_ID)
    assert max(drafter["target_layer_ids"]) < target["num_hidden_layers"] == drafter["num_target_layers"]
    for key in ("vocab_size", "hidden_size", "head_dim", "max_position_embeddings", "rope_theta"):
        assert target[key] == drafter[key]


def test_target_tensors_are_bf16_and_of_the_configured_shapes() -> None:
    tensors = _tensors(export.PAIR / "target" / "model.safetensors")
    assert tensors["model.embed_tokens.weight"] == ("BF16", [512, 192])
    assert "lm_head.weight" not in tensors, "the head is tied to the embedding"
    assert tensors["model.layers.5.self_attn.k_proj.weight"] == ("BF16", [64, 192])
    assert {dtype for dtype, _ in tensors.values()} == {"BF16"}


def test_drafter_shares_embedding_and_head_with_the_target() -> None:
    tensors = _tensors(export.PAIR / "drafter" / "model.safetensors")
    assert not [name for name in tensors if "embed_tokens" in name or "lm_head" in name]
    assert tensors["fc.weight"] == ("BF16", [192, 3 * 192])
    assert (
        tensors["markov_head.markov_w1.weight"]
        == tensors["markov_head.markov_w2.weight"]
        == ("BF16", [512, 128])
    )
    assert tensors["confidence_head.proj.weight"] == ("BF16", [1, 192 + 128])


def test_record_holds_the_committed_settings_and_corpus() -> None:
    record = json.loads((export.PAIR / "record.json").read_text())
    assert record["settings"] == json.loads(json.dumps(SETTINGS.as_record()))
    for fit in ("target_fit", "drafter_fit"):
        assert record[fit]["steps"] == record["settings"][fit]["steps"], "no fit was cut short"


def test_recorded_acceptance_on_the_engine_is_at_least_two_without_loops() -> None:
    engine = json.loads((export.PAIR / "record.json").read_text())["engine"]
    assert engine["prompts"] >= 64
    assert engine["new_tokens"] >= 128
    assert engine["texts_equal"] == engine["prompts"]
    for figure in ("all", "before_loops", "fresh"):
        assert engine["acceptance"][figure]["accepted_per_round"] >= 2.0
