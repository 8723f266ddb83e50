"""What of an engine's configuration the remote tables do not know, refused before anything is loaded."""

from typing import Any

from engram_remote.vllm_seam.errors import SeamError


def refuse(config: Any) -> None:
    """Raises SeamError with one sentence on the first thing in a VllmConfig that cannot be served.

    Every form in which stock exchanges or shares rows among data-parallel replicas is refused: `embedding_across_dp`,
    `dp_shared_memory`, and with them peer tables and the batched exchange, which exist in no other configuration.
    """
    if getattr(config, "engram_config", None) is None:
        raise SeamError(
            "this model has no Engram layers that vLLM could configure, and remote tables were asked for"
        )
    replicas = config.parallel_config.data_parallel_size
    if replicas > 1:
        raise SeamError(
            f"data_parallel_size is {replicas}: rows of data-parallel groups are not served; run one engine per replica"
        )
    for name in ("embedding_across_dp", "dp_shared_memory"):
        if getattr(config.engram_config, name, False):
            raise SeamError(
                f"engram_config.{name} is set: tables that replicas share are not served remotely"
            )


def refuse_groups(embedding: Any) -> None:
    """As `refuse`, of a stock embedding just constructed: what its own constructor found out about the groups."""
    if embedding.dp_size != 1:
        raise SeamError(f"a table over {embedding.dp_size} data-parallel replicas is not served remotely")
    if getattr(embedding, "peer_rows", 0):
        raise SeamError("peer tables are not served remotely")
