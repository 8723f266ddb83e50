"""The corpus: sources of Python's standard library, pinned by `corpus.sha256`, as tokens.

Owns which files count, which are held out, the tokenizer and the token arrays.  Must never train on a file that
the manifest does not name, and never ship a file of the corpus.
"""

import hashlib
import json
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demo.training.settings import END_ID

MANIFEST = Path(__file__).with_name("corpus.sha256")  # in the format of sha256sum
PYTHON_RELEASE = "3.11.7"  # whose Lib/ the manifest describes
# Encoding tables, generated files and test data that is no source text.
_LEFT_OUT = (
    "site-packages/",
    "encodings/",
    "pydoc_data/",
    "lib2to3/tests/data",
    "config-",
    "__phello__",
    "_sysconfigdata",
)
_CHARACTERS_MIN = 200
_NON_ASCII_SHARE_MAX = 0.02
_HELD_OUT_BELOW = 10  # of 256 values of the path's first digest byte: about 4 % of the files


class CorpusError(Exception):
    """The files at hand are not the pinned corpus; the message names those that differ."""


@dataclass(frozen=True)
class Tokens:
    """The corpus as tokens.  train, held_out: uint16 [tokens]; facts: counts and digests for the record."""

    train: npt.NDArray[np.uint16]
    held_out: npt.NDArray[np.uint16]
    facts: dict[str, Any]


def standard_library() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def is_held_out(relative_path: str) -> bool:
    """Whether a file serves for measurement only.  Depends on its path alone, so no edit moves it."""
    return hashlib.sha256(relative_path.encode()).digest()[0] < _HELD_OUT_BELOW


def select_files(root: Path) -> list[str]:
    """Relative paths of the files under `root` that count as corpus, sorted: how the manifest was made."""
    chosen = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(part in name for part in _LEFT_OUT):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a few tests of the library hold other encodings on purpose
            continue
        foreign = sum(ord(character) > 127 for character in text)
        if len(text) >= _CHARACTERS_MIN and foreign <= _NON_ASCII_SHARE_MAX * len(text):
            chosen.append(name)
    return chosen


def write_manifest(root: Path, manifest: Path = MANIFEST) -> int:
    """Write the digests of the selected files; returns their count."""
    names = select_files(root)
    lines = [f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    manifest.write_text("".join(lines))
    return len(names)


def read_manifest(manifest: Path = MANIFEST) -> dict[str, str]:
    """Relative path -> sha256 in hex, in the manifest's order."""
    entries = (line.split("  ", 1) for line in manifest.read_text().splitlines())
    return {name: digest for digest, name in entries}


def read_pinned(root: Path, manifest: Path = MANIFEST) -> dict[str, bytes]:
    """Relative path -> content of every file the manifest names.

    Raises CorpusError naming files that are missing or differ; other files under `root` do not matter.
    """
    contents: dict[str, bytes] = {}
    wrong = []
    for name, digest in read_manifest(manifest).items():
        path = root / name
        content = path.read_bytes() if path.is_file() else None
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            wrong.append(f"{name} ({'missing' if content is None else 'differs'})")
        else:
            contents[name] = content
    if wrong:
        shown = ", ".join(wrong[:10]) + (f" and {len(wrong) - 10} more" if len(wrong) > 10 else "")
        raise CorpusError(
            f"{len(wrong)} corpus files under {root} are not those of Python {PYTHON_RELEASE}: {shown}. "
            f"Name the Lib folder of that release with --source."
        )
    return contents


def _as_text(content: bytes) -> str:
    return content.decode("utf-8").replace("\r\n", "\n").replace("\t", "    ")


def _train_tokenizer(texts: Iterable[str], vocab: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<|endoftext|>", "<|mask|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def prepare(root: Path, folder: Path, vocab: int) -> dict[str, Any]:
    """Train the tokenizer and write tokenizer.json, train.npy, held_out.npy and facts.json into `folder`.

    Raises CorpusError.  Returns the facts: counts in files, bytes and tokens, and digests.
    """
    contents = read_pinned(root)
    train = [_as_text(content) for name, content in contents.items() if not is_held_out(name)]
    held_out = [_as_text(content) for name, content in contents.items() if is_held_out(name)]
    tokenizer = _train_tokenizer(train, vocab)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))

    def encode(texts: list[str]) -> npt.NDArray[np.uint16]:
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(texts):
            ids += [END_ID, *encoding.ids]
        return np.array(ids, dtype=np.uint16)

    arrays = {"train": encode(train), "held_out": encode(held_out)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    facts = {
        "python_release": PYTHON_RELEASE,
        "manifest_sha256": hashlib.sha256(MANIFEST.read_bytes()).hexdigest(),
        "files": len(contents),
        "held_out_files": len(held_out),
        "bytes": sum(len(content) for content in contents.values()),
        "held_out_text_bytes": sum(len(text.encode()) for text in held_out),
        "train_tokens": len(arrays["train"]),
        "held_out_tokens": len(arrays["held_out"]),
        "tokenizer_sha256": hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest(),
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def load_tokens(folder: Path) -> Tokens:
    """Read what `prepare` wrote into `folder`."""
    facts = json.loads((folder / "facts.json").read_text())
    return Tokens(np.load(folder / "train.npy"), np.load(folder / "held_out.npy"), facts)


def spans(tokens: npt.NDArray[np.uint16], rows: int, length: int, seed: int) -> npt.NDArray[np.int64]:
    """`rows` seeded spans of `tokens`, int64 [rows, length], in the order of the text."""
    starts = np.random.default_rng(seed).choice(len(tokens) - length, rows, replace=False)
    return np.stack([tokens[start : start + length] for start in np.sort(starts)]).astype(np.int64)
