"""Fuzz what the tables' library reads of a peer's bytes, and prove that the fuzzer finds what is planted.

    python tools/fuzz.py [--seconds 60] [--seed N] [--engine auto|libfuzzer|driver] [--report FILE]

Server's targets and client's run side by side, each side within a quarter of `--seconds`: a message is whole when they
see it, and small.  What the engines are, and where an input that breaks something stays, is said in the transport's
fuzzers.py.  Exit status 0 only if the targets were clean and every plant was found.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ofl-transport" / "tools"))

import fuzzers
from native_packages import ENGRAM

HOLDS = {
    "request_fuzz": "any message gives a view inside it, or one fault that names a field and a sound refusal",
    "rows_fuzz": "whatever ids a lookup asks for, its planes hold exactly those rows, or the first bad id is named",
    "reply_fuzz": "any reply is taken exactly if the contract allows it, and nothing outside it is read",
    "connection_fuzz": "whatever a server answers, a client has rows or a reason, and memory keeps its owner",
}
"""Fuzz target -> what holds."""
TARGETS = fuzzers.Targets(
    ENGRAM,
    HOLDS,
    turns=(["request_fuzz", "rows_fuzz"], ["reply_fuzz", "connection_fuzz"]),
    plants=("overread", "nameless", "apart", "tail", "echo", "padding", "trusting"),
    seconds_part=1 / 4,
)

if __name__ == "__main__":
    sys.exit(fuzzers.main(__doc__ or "", TARGETS))
