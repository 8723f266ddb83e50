"""The arms that checks share, so that one engine start serves several checks."""

from qualification.arms.config import TABLES
from qualification.checks.model import Arm

QUICK_RETRY = {
    "VLLM_DSPARK_REMOTE_RETRY_MS": "20",
    "VLLM_DSPARK_REMOTE_RETRY_MAX_MS": "200",
}
"""A request that lost its worker must live to see the next connection, also where it is short."""

TARGET_ONLY = Arm("target_only", "none")
LOCAL = Arm("local", "local")
LOCAL_2 = Arm("local_2", "local", ranks=2)
REMOTE = Arm("remote", "remote", settings=QUICK_RETRY)
REMOTE_2 = Arm("remote_2", "remote", ranks=2, settings=QUICK_RETRY)
SHADOW = Arm("shadow", "shadow")
TABLE_LOCAL = Arm("table_local", "none", ranks=2, settings={TABLES: "local"})
TABLE_REMOTE = Arm("table_remote", "none", ranks=2, settings={TABLES: "remote"})

WHOSE_DRAFTS = "who drafts: the engine's own drafter (OFF) or the remote worker (ON)"
ANY_DRAFTS = "whether anything drafts: the target alone (OFF) or with the remote worker (ON)"
WHOSE_ROWS = "where table rows come from: the local shards (OFF) or a table server (ON)"
