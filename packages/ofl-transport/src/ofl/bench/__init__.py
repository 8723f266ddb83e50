"""`ofl bench`: how fast a connection is, and beside what somebody else wrote, in the same run.

The loops run inside the library (`ofl_bench_serve`, `ofl_bench_run`); this package asks for them, counts, and runs the
peers' tools.  Nothing here is on anybody's data path.
"""

SERVICE = "ofl-bench"
VERSION = 1
MAX_FRAME_BYTES = 1 << 26
REQUEST_BYTES = 16
"""Of the header that every request of the service begins with."""
MAX_BYTES = MAX_FRAME_BYTES - REQUEST_BYTES
