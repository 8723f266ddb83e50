"""The same on two ranks.  In a file of its own, because files are what runs side by side."""

from collections.abc import Iterator

import pytest
from fault_matrix import ENGINE, FAULTS, POLICIES, TWO, Fault, faulty_stage, go_through
from stages import Pair, Stage, TextsByRanks, make_tiny_pair, texts_by_ranks

pytestmark = pytest.mark.engine

RANKS = 2
SETUPS = [policy for policy in POLICIES if policy != "shadow-local"]
"""A shadow that verifies local drafts does the same collectives as the one that verifies remote ones."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_tiny_pair(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def plain(pair: Pair) -> TextsByRanks:
    return texts_by_ranks(pair, TWO, **ENGINE)


@pytest.fixture(scope="module", params=SETUPS)
def stage(request: pytest.FixtureRequest, pair: Pair, plain: TextsByRanks) -> Iterator[Stage]:
    with faulty_stage(pair, plain, request.param, RANKS) as stage:
        yield stage


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_two_ranks_keep_the_text_count_the_failure_and_draft_again(stage: Stage, fault: Fault) -> None:
    go_through(stage, fault)
