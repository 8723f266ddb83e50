"""All engines of one size: those that judge and those that draft remotely, started together and used in turn."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from driver import Engine
from engines import Done, Maker, Mode, Requests, Stage, timed_run
from texts import DEMO_PAIR

AT_ONCE = {"cuda": 8, "cpu": 1}
"""Engines that start at the same time."""
Setup = tuple[str, Mode]
"""Policy and mode."""


class Fleet:
    """Judges are `plain`, without speculation, and `stock`, which drafts by vLLM's own means; one of each a mode."""

    def __init__(self, maker: Maker, setups: Sequence[Setup], **settings: str) -> None:
        """settings: of the overlay, for every drafting engine."""
        self.maker = maker
        modes = dict.fromkeys(mode for _, mode in setups)
        with ThreadPoolExecutor(AT_ONCE[maker.device]) as pool:
            judges = {
                (kind, mode): pool.submit(self._judge, kind, mode)
                for mode in modes
                for kind in ("plain", "stock")
            }
            stages = {
                (policy, mode): pool.submit(maker.stage, mode, policy, **settings) for policy, mode in setups
            }
        self._judges = {key: future.result() for key, future in judges.items()}
        self._stages = {key: future.result() for key, future in stages.items()}
        self._runs: dict[tuple[str, Mode, str], Done] = {}

    def _judge(self, kind: str, mode: Mode) -> Engine:
        drafter = DEMO_PAIR / "drafter" if kind == "stock" else None
        return self.maker.engine(f"{kind}-{mode.name}", mode, drafter)

    def stage(self, policy: str, mode: Mode) -> Stage:
        """A drafting engine."""
        return self._stages[policy, mode]

    def judged(self, kind: str, mode: Mode, name: str, wanted: Requests) -> Done:
        """A judge's run of some requests.  name: of these requests; the same ones run once."""
        key = (kind, mode, name)
        if key not in self._runs:
            timed_run(self._judges[kind, mode], wanted)  # kernels are made at their first use
            self._runs[key] = timed_run(self._judges[kind, mode], wanted)
        return self._runs[key]
