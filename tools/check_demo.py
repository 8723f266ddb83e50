"""Judge the JSON summaries of the demo, of its drill and of its story of the tables by the figures that the project
promises.

    python tools/check_demo.py DEMO.json DRILL.json ENGRAM.json

Standard library only.  Prints one line for each promise; exit status 1 when one is broken.
"""

import json
import sys
from pathlib import Path
from typing import Any

ACCEPTED_MIN = 2.0
OK_SHARE_MIN = 0.95
OUTAGE_TOKENS_MIN = 16
GOOD_ROUNDS_MIN = 100
CHECKED_ROWS_MIN = 1_000_000


def demo_promises(figures: dict[str, Any]) -> dict[str, bool]:
    """What a plain run promises, by sentence."""
    rounds = figures["rounds_ok"] + figures["rounds_failed"]
    return {
        "the text equals the plain engine's": figures["text_equal"] is True,
        f"at least {OK_SHARE_MIN:.0%} of the rounds are ok": rounds > 0
        and figures["rounds_ok"] / rounds >= OK_SHARE_MIN,
        f"at least {ACCEPTED_MIN} tokens are accepted a round": figures["accepted_per_round"] >= ACCEPTED_MIN,
    }


def drill_promises(figures: dict[str, Any]) -> dict[str, bool]:
    """What the drill promises, by sentence."""
    drill = figures["drill"]
    return {
        "the text equals the plain engine's": figures["text_equal"] is True,
        "the drill was completed": drill["completed"] is True,
        f"at least {OUTAGE_TOKENS_MIN} tokens came without a worker": drill["tokens_without_worker"]
        >= OUTAGE_TOKENS_MIN,
        "the rounds without a worker are counted as fallbacks": drill["fallback_rounds"] > 0,
        "every failed round has its reason": sum(figures["fallbacks"].values()) == figures["rounds_failed"],
        "the context was sent again": drill["resync_rows"] > 0,
        f"at least {GOOD_ROUNDS_MIN} good rounds followed": drill["good_rounds_after_restart"]
        >= GOOD_ROUNDS_MIN,
    }


def tables_promises(figures: dict[str, Any]) -> dict[str, bool]:
    """What the story of the tables promises, by sentence."""
    drill = figures["drill"]
    before, away, back = (drill["outcomes"].get(phase, {}) for phase in ("before", "away", "back"))
    return {
        "no row was wrong": figures["rows_wrong"] == 0,
        f"more than {CHECKED_ROWS_MIN:,} rows were checked": figures["rows_checked"] > CHECKED_ROWS_MIN,
        "every refusal was as it must be": figures["refusals_wrong"] == 0,
        "the drill was completed": drill["completed"] is True,
        "rows came from the server before it was killed": before.get("remote", 0) > 0,
        "rows came from the local shards while it was away": sum(away.values()) > away.get("remote", 0),
        "rows came from the server after it was back": back.get("remote", 0) > 0,
    }


def main(argv: list[str]) -> int:
    """Print every promise with its verdict."""
    if len(argv) != 3:
        print("usage: check_demo.py DEMO.json DRILL.json ENGRAM.json", file=sys.stderr)
        return 2
    kept = True
    for path, promises in zip(argv, (demo_promises, drill_promises, tables_promises), strict=True):
        for sentence, holds in promises(json.loads(Path(path).read_text(encoding="utf-8"))).items():
            print(f"{'ok    ' if holds else 'BROKEN'} {Path(path).stem}: {sentence}")
            kept = kept and holds
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
