"""`python -m spark_overlay.docs FOLDER`: rewrites the generated parts of docs/operations.

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a test compares.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from ofl.doctor.checks import HOST_CHECKS
from ofl.doctor.findings import table
from ofl.doctor.peers import PEER_CHECKS
from ofl.documents import rewrite

from spark_overlay.agreement import INELIGIBLE
from spark_overlay.doctor.checks import ENGINE_CHECKS
from spark_overlay.figures import LATENCIES
from spark_overlay.link import LinkCounters
from spark_overlay.observe.settings import ObserveSettings
from spark_overlay.round.counters import Counters
from spark_overlay.settings import not_built_yet_list, settings_table


def meanings_table(head: str, meanings: Mapping[str, str]) -> str:
    """A Markdown table of names and meanings."""
    lines = [f"| {head} | Meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in meanings.items()]
    return "\n".join(lines) + "\n"


def parts() -> dict[str, dict[str, str]]:
    """The generated parts by file and name."""
    return {
        "doctor.md": {
            "host checks": table(HOST_CHECKS),
            "engine checks": table(ENGINE_CHECKS),
            "peer checks": table(PEER_CHECKS),
        },
        "settings.md": {
            "settings": settings_table(),
            "not built yet": not_built_yet_list(),
            "observation": settings_table(ObserveSettings),
        },
        "stats.md": {
            "counters": meanings_table("Counter", Counters.meanings() | LinkCounters.meanings()),
            "latencies": meanings_table("Latency", LATENCIES),
            "ineligible": meanings_table("Reason", INELIGIBLE),
        },
    }


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]), parts())
