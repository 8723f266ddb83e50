"""Names that a launch config may use for the settings of drafter and tables, and those that belong elsewhere.

Owns both lists; they are made from, or compared in a test with, the settings' own definitions.
"""

from spark_overlay.settings import NOT_BUILT_YET, PREFIX, Settings

TABLES_PREFIX = "VLLM_ENGRAM_REMOTE"
ELSEWHERE = {
    "identity": "set identity in the site",
    "markov_identity": "set markov_identity in the site",
    "ready_file": "the launcher sets it",
    "start_id": "use the option --start-id",
}
"""Settings that are no part of [remote], and what to do instead."""
TABLES_ELSEWHERE = {"ready_file": ELSEWHERE["ready_file"], "start_id": ELSEWHERE["start_id"]}


def key_of(variable: str, prefix: str) -> str:
    """The key that stands for a variable."""
    return variable.removeprefix(prefix).removeprefix("_").lower()


REMOTE_KEYS = {
    key: str(field.description)
    for field in Settings.model_fields.values()
    if (key := key_of(str(field.alias), PREFIX)) and key not in ELSEWHERE
}
"""Keys of [remote] and their meanings."""
NOT_BUILT_KEYS = frozenset(key_of(name, PREFIX) for name in NOT_BUILT_YET)
TABLE_KEYS = {
    "servers": "the table servers, a comma list with one entry for each rank, or one for all",
    "tables": "folder with `manifest.json` and this rank's shards",
    "timeout_ms": "milliseconds that a lookup may wait for the server",
    "required": "whether the engine starts only with every rank's server",
    "connect_timeout_ms": "milliseconds for one attempt to connect",
    "retry_ms": "milliseconds before the first new attempt",
    "retry_max_ms": "milliseconds between attempts, at most",
    "key_file": "file with the key that both sides prove",
    "bounce": "whether replies land in a second buffer",
    "checksum": "whether replies carry a checksum",
    "buffered": "whether the local shard is read through the page cache",
    "pread": "whether it is read with a pool of threads",
    "read_threads": "threads of that pool",
    "spin_ms": "milliseconds of looking for the next lookup without sleeping",
    "log_s": "seconds of traffic between two log lines",
}
"""Keys of [tables] and their meanings: engram-remote's settings, which this package cannot import."""
OWNED_OPTIONS = {
    "model": "the site's target",
    "config": "[engine]",
    "speculative-config": "[speculative]",
    "spec-method": "[speculative]",
    "spec-model": "the site's drafter",
    "spec-tokens": "[speculative]",
    "tensor-parallel-size": "the site's tensor_parallel_size",
    "nnodes": "the site's hosts",
    "node-rank": "the option --rank",
    "master-addr": "the site's hosts",
    "master-port": "the site's master_port",
    "distributed-executor-backend": "the site's hosts",
    "headless": "the site's hosts",
    "host": "the site's host",
    "port": "the site's port",
}
"""Options of the engine's command that the renderer writes, and what sets each."""
SHORT_OPTIONS = {"tp": "tensor-parallel-size", "n": "nnodes", "r": "node-rank", "sc": "speculative-config"}
"""vLLM's short names of some of them."""
