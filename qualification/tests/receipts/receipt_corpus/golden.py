"""The accepted receipts as files: `python -m receipt_corpus.golden`, run in the folder above, writes them anew.

They are of the version of qualify that made them, and every later one must accept them.
"""

from pathlib import Path

from qualification.receipts import sign

from receipt_corpus import sound

FOLDER = Path(__file__).parents[1] / "golden"


def contents() -> dict[str, bytes]:
    """Native receipts of each verdict, and one rehearsal, by file name."""
    made = dict(zip(sound.KNOWN_NAMES, sound.statements(sound.run_record()), strict=True))
    made["alpha_rehearsed"] = sound.statements(sound.run_record(), sound.simulated)[0]
    return {f"{name}.json": sign(statement, sound.SIGNER) for name, statement in made.items()}


if __name__ == "__main__":
    for name, data in contents().items():
        (FOLDER / name).write_bytes(data)
