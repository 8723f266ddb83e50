"""A drafting engine and its oracle worker, with the texts that are right: what the suites of faults share.

The right texts come from an engine of the same tensor parallel size without speculation.
"""

import functools
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver import Engine, dspark, engine_environment, two_ranks
from reference.tiny_checkpoints import BLOCK, HIDDEN, KINDS, TAPS, VOCABULARY, make_pair
from worker_process import IDENTITY, MARKOV_IDENTITY, OracleWorker

WINDOW = 23
"""Of the `sliding` kind: layers see 24 keys, so 23 rows before the anchor."""
CONNECT_S = 20.0
Requests = dict[str, dict[str, Any]]
TextsByRanks = Callable[[int], dict[str, list[int]]]


def make_request(
    seed: int, length: int, max_tokens: int, prefix: list[int] | None = None, **more: Any
) -> dict[str, Any]:
    """A random prompt, after a given prefix."""
    source = random.Random(seed)
    prompt = [*(prefix or []), *(source.randrange(3, VOCABULARY - 1) for _ in range(length))]
    return {"prompt": prompt, "max_tokens": max_tokens, **more}


@dataclass(frozen=True)
class Pair:
    """A tiny target and its drafter.  bare: the drafter's folder without weights, as a capacity host has it."""

    folder: Path
    drafter: Path
    bare: Path
    target: Path


def make_tiny_pair(folder: Path) -> Pair:
    """The `sliding` kind in folder."""
    drafter, target = make_pair(folder, KINDS["sliding"])
    bare = folder / "config-only"
    bare.mkdir()
    shutil.copy(drafter / "config.json", bare)
    return Pair(folder, drafter, bare, target)


def changes_for(ranks: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Environment and arguments for so many ranks."""
    return two_ranks() if ranks == 2 else ({}, {})


def right_texts(pair: Pair, ranks: int, requests: Requests, **arguments: Any) -> dict[str, list[int]]:
    """What an engine without speculation says, each text a block longer than asked for.

    Longer, so that the last drafts of a text that an oracle makes of it are right ones too.
    """
    environment, more = changes_for(ranks)
    longer = {
        name: {"prompt": wanted["prompt"], "max_tokens": wanted["max_tokens"] + BLOCK + 1}
        for name, wanted in requests.items()
    }
    with Engine(pair.folder / f"plain-{ranks}.log", engine_environment(**environment)) as engine:
        found = engine.start(model=str(pair.target), **(arguments | more))
        assert found["event"] == "ready", found
        assert len(found["ranks"]) == ranks
        done = engine.run(longer)
        assert done["event"] == "finished", done
        assert engine.quit() == 0
    tokens: dict[str, list[int]] = done["tokens"]
    return tokens


def texts_by_ranks(pair: Pair, requests: Requests, **arguments: Any) -> TextsByRanks:
    """`right_texts` by number of ranks, from one engine each, which is started when they are first asked for."""

    @functools.cache
    def texts(ranks: int) -> dict[str, list[int]]:
        return right_texts(pair, ranks, requests, **arguments)

    return texts


@dataclass
class Stage:
    """Both sides and what is right.  texts: by request, its continuation by the engine that never drafts."""

    engine: Engine
    worker: OracleWorker
    texts: dict[str, list[int]]
    found: dict[str, Any]
    stats_file: Path

    def right(self, requests: Requests) -> dict[str, list[int]]:
        """The continuations of these requests."""
        return {name: self.texts[name][: wanted["max_tokens"]] for name, wanted in requests.items()}

    def counters(self) -> dict[str, int]:
        """The overlay's counters now."""
        counters: dict[str, int] = self.engine.stats()["counters"]
        return counters

    def grown(self, before: dict[str, int], names: Iterable[str] | None = None) -> dict[str, int]:
        """The counters that are higher than before, and by how much; of these names only, where given."""
        after = self.counters()
        chosen = after if names is None else names
        return {name: after[name] - before[name] for name in chosen if after[name] != before[name]}

    def connect(self) -> None:
        """Wait until the engine has a session."""
        connected = self.engine.on_ranks("wait_connected", CONNECT_S)
        assert True in connected, self.engine.stats()


@contextmanager
def drafting_stage(
    pair: Pair,
    texts: dict[str, list[int]],
    requests: Requests,
    *,
    name: str,
    ranks: int,
    local_weights: bool,
    settings: dict[str, str],
    engine: dict[str, Any],
    speculative: dict[str, Any] | None = None,
    worker_first: bool = False,
    variables: dict[str, str] | None = None,
) -> Iterator[Stage]:
    """An engine that drafts through an oracle which knows the requests' texts; the worker is started by the caller,
    or here before the engine (worker_first).

    settings: of the overlay, without their prefix.  engine, speculative: arguments and configuration.
    variables: more of the engine's environment.
    """
    folder = pair.folder / name
    folder.mkdir()
    shape = {
        "vocabulary": VOCABULARY,
        "row_elements": HIDDEN * len(TAPS),
        "tap_count": len(TAPS),
        "window": WINDOW,
        "max_positions": engine["max_model_len"],
        "block_length": BLOCK,
    }
    known = [wanted["prompt"] + texts[request] for request, wanted in requests.items()]
    worker = OracleWorker(folder, shape, known)
    given = {
        "IDENTITY": IDENTITY,
        "MARKOV_IDENTITY": MARKOV_IDENTITY,
        "RETRY_MS": "100",
        "RETRY_MAX_MS": "200",
        "STATS_FILE": str(folder / "stats.json"),
        "LOG_EVERY": "1",
    } | settings
    environment, more = changes_for(ranks)
    environment |= {f"VLLM_DSPARK_REMOTE_{key}": value for key, value in given.items()} | (variables or {})
    drafter = pair.drafter if local_weights else pair.bare
    process = Engine(
        folder / "engine.log", engine_environment(VLLM_DSPARK_REMOTE=worker.endpoint, **environment)
    )
    with worker, process:
        if worker_first:
            worker.start()
        found = process.start(
            model=str(pair.target),
            speculative_config=dspark(drafter, BLOCK, **(speculative or {})),
            **(engine | more),
        )
        assert found["event"] == "ready", found
        assert len(found["ranks"]) == ranks
        yield Stage(process, worker, texts, found, folder / "stats.json")
