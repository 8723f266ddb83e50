"""One request of the simulated engine: its tokens and its true rows.

Owns the truth that everything is compared with.  A row belongs to the computation that made it: computed again, it
is another row, as on a real engine, where the order of sums depends on the batch.
"""

from dataclasses import dataclass, field

from spark_overlay.simulation.model import Model


@dataclass
class SimulatedRequest:
    """Positions are absolute.  slot: -1 while it waits.

    tokens: prompt and what was said.  prompt_length: of the prompt alone.  length_max: the length at which it ends.
    path: the target's state after each token.  computed: positions with a KV cache.  blocks: of it.
    rows, digests: of each computed position; where the engine trims rows, zeros and b"".
    drafts: to be verified in its next step.  resumed: after a preemption.  hit: positions of this life that came
    from the prefix cache.  rounds: of this life.
    """

    name: str
    tokens: list[int]
    length_max: int
    slot: int = -1
    computed: int = 0
    blocks: int = 0
    prompt_length: int = 0
    path: list[bytes] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    resumed: bool = False
    hit: int = 0
    rounds: int = 0

    def begin(self, model: Model) -> None:
        """Follow the prompt."""
        self.prompt_length = len(self.tokens)
        state = model.begin()
        for token in self.tokens:
            state = model.advance(state, token)
            self.path.append(state)

    @property
    def finished(self) -> bool:
        """Whether the text is as long as was asked for."""
        return len(self.tokens) >= self.length_max

    def say(self, token: int, model: Model) -> None:
        """One more token."""
        self.tokens.append(token)
        self.path.append(model.advance(self.path[-1], token))

    def check_text(self, model: Model) -> None:
        """Raises AssertionError where the target alone, given the prompt, would have said something else."""
        state = model.begin()
        for token in self.tokens[: self.prompt_length]:
            state = model.advance(state, token)
        for position, said in enumerate(self.tokens[self.prompt_length :], self.prompt_length):
            right = model.choose(state)
            assert said == right, f"{self.name} said {said} at position {position}; the target says {right}"
            state = model.advance(state, right)

    def enter(self, slot: int, rows: list[bytes], digests: list[bytes]) -> None:
        """Begin a life in a slot, with what the prefix cache has of it."""
        self.slot, self.rows, self.digests = slot, rows, digests
        self.hit = self.computed = len(rows)
        self.rounds = 0

    def leave(self) -> None:
        """Give slot and KV cache back."""
        self.resumed = True
        self.slot, self.computed, self.blocks = -1, 0, 0
        self.drafts = []

    def rewind(self, position: int) -> None:
        """The KV cache from position on is lost and will be computed again."""
        self.computed = position
        del self.rows[position:], self.digests[position:]
