"""What a mutant is, and all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from receipt_corpus.bench import Bench

Apply = Callable[[Bench], object]


@dataclass(frozen=True)
class Mutant:
    """One thing wrong with the sound run.  rule: the only rule that it violates.

    publish: signed, chained and published again after `apply`; afterwards: what is done to the files then.
    """

    name: str
    rule: str
    apply: Apply = lambda bench: None
    afterwards: Apply = lambda bench: None
    complete: bool = True
    """`complete.json` is made anew after `afterwards`."""

    def inflict(self, bench: Bench) -> None:
        """Do it."""
        self.apply(bench)
        bench.publish()
        self.afterwards(bench)
        if self.complete:
            bench.complete()


def every_mutant() -> list[Mutant]:
    """In the order of the rules' stages."""
    from receipt_corpus import of_bytes, of_evidence, of_fields, of_receipts, of_runs, of_signatures

    modules = (of_bytes, of_signatures, of_fields, of_receipts, of_evidence, of_runs)
    return [mutant for module in modules for mutant in module.MUTANTS]
