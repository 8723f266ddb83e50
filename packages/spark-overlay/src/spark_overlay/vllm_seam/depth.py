"""How deep an engine verifies, as far as remote drafting has a say: costs for its own depth policy, and stock vLLM's
adaptive verification.

Owns what is refused about either, and what is put in place of the local drafter's figures: before a model runner
exists, the variables that a depth policy reads; on one that is about to serve, the draft costs of stock's manager.  The
verify costs stay the engine's own.  Reads attributes of vLLM's objects, imports nothing of it; every rank does the
same from settings that are compared before.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from spark_overlay.depth.rules import (
    FILE,
    OFF,
    POLICY,
    REMOTE_DRAFT_MS,
    REMOTE_ROUND_MS,
    depth_policy,
    overrides,
    problems,
)
from spark_overlay.settings import Settings
from spark_overlay.vllm_seam.errors import SeamError

log = logging.getLogger(__name__)

VALUE_MAX = 80
"""Characters of a value that the ranks compare as it is."""
ADAPTIVE = "enable_adaptive_verification is on"


def is_adaptive(speculative: Any) -> bool:
    """Whether stock's adaptive verification was asked for.  speculative: a SpeculativeConfig, or None; before vLLM 0.30
    it cannot say so.
    """
    return bool(getattr(speculative, "enable_adaptive_verification", False))


def takes_remote_confidences(settings: Settings) -> bool:
    """Whether the drafts that are verified come with the worker's confidences: not in a shadow that uses local ones."""
    return settings.policy != "shadow" or settings.shadow_use == "remote"


def prepare(config: Any, settings: Settings, environ: MutableMapping[str, str]) -> None:
    """Before a model runner exists: refuse what cannot be priced, then have the engine's depth policy read our costs.

    Raises SeamError with the first reason.  May run any number of times.
    """
    for sentence in refusals(config, settings, environ):
        raise SeamError(sentence)
    environ.update(overrides(settings.costs, local_costs=settings.policy == "shadow"))


def refusals(config: Any, settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Every reason, in the order in which an operator would mend them.  config: one that `refusals.refuse` let pass."""
    speculative = config.speculative_config
    yield from problems(
        settings.costs,
        environ,
        speculative.num_speculative_tokens,
        local_costs=settings.policy == "shadow",
    )
    if not is_adaptive(speculative):
        return
    if depth_policy(environ) != OFF:
        yield f"{ADAPTIVE} and {POLICY} is {environ[POLICY]!r}: one of them alone can choose the depth"
    if not takes_remote_confidences(settings):
        return
    if not getattr(speculative.draft_model_config.hf_config, "enable_confidence_head", False):
        yield (
            f"{ADAPTIVE}: it needs the drafter's confidences, and this drafter's config.json has no confidence head "
            "(enable_confidence_head)"
        )
    if settings.policy != "shadow" and settings.draft_ms is None:
        yield (
            f"{ADAPTIVE}: {REMOTE_DRAFT_MS} must say what a remote round costs, in place of the local drafter's cost "
            "(`spark-overlay calibrate` measures it)"
        )


def decisive_costs(speculative: Any, settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """What every rank must be set to alike so that all verify equally many drafts, by name; each value of a bounded
    length, as the ranks exchange them.
    """
    found = {
        REMOTE_DRAFT_MS: str(settings.draft_ms),
        REMOTE_ROUND_MS: str(settings.round_ms),
        POLICY: environ.get(POLICY, ""),
        FILE: environ.get(FILE, ""),
        "enable_adaptive_verification": str(is_adaptive(speculative)),
    }
    return {name: _brief(value) for name, value in found.items()}


def _brief(value: str) -> str:
    """The value where it is short; else its beginning and a digest of all of it."""
    if len(value) <= VALUE_MAX and value.isascii():
        return value
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
    return f"{ascii(value)[1:VALUE_MAX]}… (sha256 {digest[:16]})"


def check_version(config: Any, version: str, *, known: bool) -> None:
    """Raises SeamError where adaptive verification is asked of a vLLM whose speculators have none."""
    if is_adaptive(config.speculative_config) and not known:
        raise SeamError(f"{ADAPTIVE}: vLLM {version} has no adaptive verification")


def price_drafts(model_runner: Any, settings: Settings) -> None:
    """On an engine that is about to serve: put the remote draft cost in place of the profiled one.

    Stock prices a step of n requests and t tokens as draft[n] + verify[t], from tables that it has profiled.  A remote
    round costs the same for any n here.  Raises SeamError where stock came to have no manager or no tables.
    """
    if not is_adaptive(model_runner.speculative_config):
        return
    manager = getattr(model_runner, "adaptive_verification", None)
    if manager is None or manager.cost_tables is None:
        lack = "no adaptive verification" if manager is None else "no profiled costs of verifying"
        raise SeamError(f"{ADAPTIVE}, but the engine came up with {lack}")
    if settings.policy == "shadow" or settings.draft_ms is None:
        return
    draft_ms, verify_ms = manager.cost_tables
    local_ms = float(draft_ms[-1])
    replaced = draft_ms.copy()
    replaced[:] = settings.draft_ms
    manager.cost_tables = (replaced, verify_ms)
    log.info(
        "adaptive verification by the worker's confidences; a draft costs %g ms (%s) instead of the profiled %.3g ms, "
        "verifying what vLLM profiled",
        settings.draft_ms,
        REMOTE_DRAFT_MS,
        local_ms,
    )


def check_worker(model_runner: Any, settings: Settings, stats: Mapping[str, Any]) -> None:
    """Raises SeamError where confidences are needed and the worker that is connected sends none.  stats: the
    drafter's.
    """
    if not (is_adaptive(model_runner.speculative_config) and takes_remote_confidences(settings)):
        return
    worker = stats["worker"]
    if stats["connected"] and worker is not None and not worker["confidence"]:
        raise SeamError(
            f"{ADAPTIVE}: it needs the drafter's confidences, and the worker at {stats['endpoint']} sends none"
        )
