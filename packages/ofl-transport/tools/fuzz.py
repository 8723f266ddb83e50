"""Fuzz what the transport reads of a peer's bytes, and prove that the fuzzer finds what is planted.

    python tools/fuzz.py [--seconds 60] [--seed N] [--engine auto|libfuzzer|driver] [--report FILE]

The parser of frames has all of `--seconds`; beside it the other targets take turns and share them.  What the engines
are, and where an input that breaks something stays, is said in fuzzers.py.  Exit status 0 only if the targets were
clean and every plant was found.
"""

import sys

import fuzzers
from native_packages import OFL

HOLDS = {
    "frame_fuzz": "any bytes to a socket's reader give frames or one fault that names a field",
    "reader_fuzz": "any bytes to the reader of a stream give frames or one fault that names a field",
    "segment_fuzz": "any segments of a queue pair give frames or one fault that names a field",
    "ring_fuzz": "whatever stands in a ring, its reader and its writer stay inside",
    "shm_fuzz": "whatever a peer writes into shared memory, an end goes on or has one fault that names a field",
    "connection_fuzz": "whatever a client sends, a connection answers in sound frames and ends with a reason",
    "client_fuzz": "whatever a server sends, nothing lands in memory whose call has ended",
}
"""Fuzz target -> what holds."""
PARSER = "frame_fuzz"
TARGETS = fuzzers.Targets(
    OFL,
    HOLDS,
    turns=([PARSER], [target for target in HOLDS if target != PARSER]),
    plants=("overrun", "swallow", "stale", "nameless", "torn"),
)

if __name__ == "__main__":
    sys.exit(fuzzers.main(__doc__ or "", TARGETS))
