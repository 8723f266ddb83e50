"""The counters of an engine's /metrics that measurements need, as typed values and their differences.

Read through prometheus_client's parser, which vLLM's own environment has.  Lines of several engine cores are added.
"""

from collections import defaultdict
from dataclasses import dataclass, field, fields

from prometheus_client.parser import text_string_to_metric_families

from spark_overlay.http_api.api import METRICS, EngineApi
from spark_overlay.http_api.errors import EngineReplyInvalid, said
from spark_overlay.http_api.gauges import GaugesError, Load, read_load

POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
POSITIONS_MAX = 256
"""Draft positions of a block: far more than any engine drafts."""


def _of(name: str) -> float:
    """A field and the sample that it is read from."""
    return field(default=0.0, metadata={"sample": name})


@dataclass(frozen=True)
class EngineCounters:
    """Counters since the engine's start, or a difference of two readings.  Times in seconds.

    speculative: whether the engine counts drafts at all; else the four counters of drafts stay 0.
    decode_steps, decode_s: vLLM notes at each step, for each request that got tokens other than its first ones, the
    time since its tokens before: of one request alone that is the time of a step.
    """

    drafts: float = _of("vllm:spec_decode_num_drafts_total")
    draft_tokens: float = _of("vllm:spec_decode_num_draft_tokens_total")
    accepted_tokens: float = _of("vllm:spec_decode_num_accepted_tokens_total")
    decode_steps: float = _of("vllm:inter_token_latency_seconds_count")
    decode_s: float = _of("vllm:inter_token_latency_seconds_sum")
    generation_tokens: float = _of("vllm:generation_tokens_total")
    prompt_tokens: float = _of("vllm:prompt_tokens_total")
    prefix_cache_hits: float = _of("vllm:prefix_cache_hits_total")
    preemptions: float = _of("vllm:num_preemptions_total")
    accepted_by_position: tuple[float, ...] = ()
    speculative: bool = False

    def since(self, before: "EngineCounters") -> "EngineCounters":
        """What was counted from `before` on; of an engine that was started anew in between, negative."""
        values = {name: getattr(self, name) - getattr(before, name) for name in _NAMES}
        length = len(self.accepted_by_position)
        older = (*before.accepted_by_position, *(0.0,) * length)[:length]
        by_position = tuple(new - old for new, old in zip(self.accepted_by_position, older, strict=True))
        return EngineCounters(**values, accepted_by_position=by_position, speculative=self.speculative)


_NAMES = {entry.name: str(entry.metadata["sample"]) for entry in fields(EngineCounters) if entry.metadata}


def read_counters(text: str) -> EngineCounters:
    """From the text of /metrics.  A counter that is not there is 0.  Raises ValueError where it is no such text."""
    sums: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value
            if sample.name == POSITIONS:
                at = int(sample.labels["position"])
                if not 0 <= at < POSITIONS_MAX:
                    raise ValueError(f"draft position {at}")
                positions[at] += sample.value
    values = {name: sums.get(sample, 0.0) for name, sample in _NAMES.items()}
    by_position = tuple(positions[at] for at in range(max(positions, default=-1) + 1))
    speculative = _NAMES["drafts"] in sums
    return EngineCounters(**values, accepted_by_position=by_position, speculative=speculative)


def observe(api: EngineApi) -> tuple[Load, EngineCounters]:
    """Load and counters of one reading of /metrics.  Raises EngineApiError."""
    text = api.metrics_text()
    try:
        return read_load(text), read_counters(text)
    except GaugesError as error:
        raise EngineReplyInvalid(f"{api.url(METRICS)}: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise EngineReplyInvalid(
            f"{api.url(METRICS)}: not Prometheus's text format ({said(str(error))})"
        ) from None
