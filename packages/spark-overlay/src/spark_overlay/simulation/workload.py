"""Who asks what of the simulated engine, and when: arrivals, cancels, lost KV blocks; drawn from one seed."""

import random
from dataclasses import dataclass
from typing import Protocol

from spark_overlay.simulation.model import Model
from spark_overlay.simulation.requests import SimulatedRequest
from spark_overlay.simulation.scheduler import Scheduler

PREFIXES = 3
PREFIX_TOKENS = 48
WAITING_MAX = 3
REWOUND = (4, 60)
"""Positions that are computed again at once, at most: a few, or more than fit in a message."""


@dataclass(frozen=True)
class Rates:
    """Of each step.  rewinds: of each running request, that KV blocks of it are lost and computed again."""

    arrivals: float = 0.3
    cancels: float = 0.01
    rewinds: float = 0.02


class Workload(Protocol):
    """What the engine is asked for, step by step."""

    def arrive(self, scheduler: Scheduler) -> None:
        """Add requests that come now."""

    def disturb(self, scheduler: Scheduler) -> list[SimulatedRequest]:
        """Let running requests lose KV blocks; those that nobody wants any more are returned, to be removed."""


class SeededWorkload:
    """One run's.  Prompts share prefixes, so that the prefix cache has hits.  arrived, cancelled: requests so far."""

    def __init__(self, seed: int, model: Model, rates: Rates) -> None:
        self._random = random.Random(f"workload {seed}")
        self._model, self._rates = model, rates
        self._prefixes = [self._tokens(PREFIX_TOKENS) for _ in range(PREFIXES)]
        self.arrived = self.cancelled = 0

    def arrive(self, scheduler: Scheduler) -> None:
        """See `Workload`: maybe one more request; one for sure where there is none."""
        idle = not scheduler.running and not scheduler.waiting
        if idle or (len(scheduler.waiting) < WAITING_MAX and self._random.random() < self._rates.arrivals):
            scheduler.waiting.append(self._request())

    def disturb(self, scheduler: Scheduler) -> list[SimulatedRequest]:
        """See `Workload`."""
        for request in scheduler.running:
            if request.computed > request.hit + 1 and self._random.random() < self._rates.rewinds:
                most = self._random.choice(REWOUND)
                back = self._random.randint(1, min(most, request.computed - request.hit - 1))
                request.rewind(request.computed - back)
        gone = [
            request
            for request in (*scheduler.running, *scheduler.waiting)
            if self._random.random() < self._rates.cancels
        ]
        self.cancelled += len(gone)
        return gone

    def _request(self) -> SimulatedRequest:
        self.arrived += 1
        draw, longest = self._random, self._model.max_positions
        tokens = self._tokens(draw.randint(1, 30))
        if draw.random() < 0.5:
            tokens = draw.choice(self._prefixes)[: draw.randint(8, PREFIX_TOKENS)] + tokens
        length = longest if draw.random() < 0.03 else min(longest, len(tokens) + draw.randint(1, 70))
        request = SimulatedRequest(f"r{self.arrived}", tokens, length)
        request.begin(self._model)
        return request

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(self._model.vocabulary) for _ in range(count)]
