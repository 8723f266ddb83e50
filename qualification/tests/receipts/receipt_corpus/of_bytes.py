"""Files and payloads that cannot be read."""

from receipt_corpus.bench import Bench, Bytes
from receipt_corpus.mutants import Apply, Mutant

BOM = b"\xef\xbb\xbf"


def enveloped(change: Bytes) -> Apply:
    """Done to the first receipt's file, which nobody signs."""

    def apply(bench: Bench) -> None:
        bench.envelope[0] = change

    return apply


def signed(change: Bytes) -> Apply:
    """Done to what is signed."""

    def apply(bench: Bench) -> None:
        bench.payload[0] = change

    return apply


def swap(old: bytes, new: bytes) -> Bytes:
    """The first occurrence, which must be there."""

    def change(data: bytes) -> bytes:
        assert old in data, old
        return data.replace(old, new, 1)

    return change


def _link(bench: Bench) -> None:
    (bench.root / "receipts" / "z.json").symlink_to(bench.path(0))


def _folder(bench: Bench) -> None:
    (bench.root / "receipts" / "z.json").mkdir()


NUMBER = b'"value":0.05'
MUTANTS = [
    Mutant("a receipt that is a link", "unreadable", afterwards=_link),
    Mutant("a receipt that is a folder", "unreadable", afterwards=_folder),
    Mutant("a file of 5 MiB", "size", enveloped(lambda data: data + b" " * (5 << 20))),
    Mutant("a file with a byte order mark", "encoding", enveloped(lambda data: BOM + data)),
    Mutant("a file in UTF-16", "encoding", enveloped(lambda data: data.decode().encode("utf-16"))),
    Mutant("a payload with a byte order mark", "encoding", signed(lambda data: BOM + data)),
    Mutant("a payload in Latin-1", "encoding", signed(swap(b"All of", b"All \xfc of"))),
    Mutant("half of a surrogate pair", "encoding", signed(swap(b"All of", b"All \\ud800 of"))),
    Mutant("an empty file", "json", enveloped(lambda data: b"")),
    Mutant("a file cut off", "json", enveloped(lambda data: data[:-1])),
    Mutant("a file with a second value", "json", enveloped(lambda data: data + b"{}")),
    Mutant("a payload cut off", "json", signed(lambda data: data[: len(data) // 2])),
    Mutant("a payload with something behind it", "json", signed(lambda data: data + b"]")),
    Mutant("a payload nested without end", "json", signed(lambda data: b"[" * 100_000 + b"]" * 100_000)),
    Mutant("a payload in single quotes", "json", signed(lambda data: data.replace(b'"', b"'"))),
    Mutant(
        "an envelope with two payloads",
        "duplicate_key",
        enveloped(swap(b'{"payload"', b'{"payload":"","payload"')),
    ),
    Mutant(
        "a payload with two verdicts",
        "duplicate_key",
        signed(swap(b'"verdict"', b'"verdict":"FAIL","verdict"')),
    ),
    Mutant("a threshold with two values", "duplicate_key", signed(swap(NUMBER, NUMBER + b"," + NUMBER))),
    Mutant("NaN", "number", signed(swap(NUMBER, b'"value":NaN'))),
    Mutant("Infinity", "number", signed(swap(NUMBER, b'"value":Infinity'))),
    Mutant("minus Infinity", "number", signed(swap(NUMBER, b'"value":-Infinity'))),
    Mutant("a number beyond doubles", "number", signed(swap(NUMBER, b'"value":1e999'))),
    Mutant(
        "a double written as 1 and sixteen zeros",
        "number",
        signed(swap(NUMBER, b'"value":10000000000000000')),
    ),
    Mutant("2^53", "number", signed(swap(b'"observed":12', b'"observed":9007199254740992'))),
    Mutant(
        "a number of 5,000 digits", "number", signed(swap(b'"observed":12', b'"observed":' + b"9" * 5000))
    ),
    Mutant("an envelope with a space", "canonical", enveloped(swap(b",", b", "))),
    Mutant("an envelope with a newline behind", "canonical", enveloped(lambda data: data + b"\n")),
    Mutant("a payload with a space", "canonical", signed(swap(b",", b", "))),
    Mutant("keys in another order", "canonical", signed(lambda data: b'{"subject":[],"predicate":{}}')),
    Mutant("1.0 in place of an integer", "canonical", signed(swap(b'"observed":12', b'"observed":12.0'))),
    Mutant("an exponent", "canonical", signed(swap(NUMBER, b'"value":5e-2'))),
    Mutant("a negative zero", "canonical", signed(swap(NUMBER, b'"value":-0'))),
    Mutant("a letter as an escape", "canonical", signed(swap(b"All of", b"\\u0041ll of"))),
]
