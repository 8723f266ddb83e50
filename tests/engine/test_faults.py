"""Every fault of a worker in every policy, on a real engine of one rank: the text is that of one that never drafts."""

from collections.abc import Iterator

import pytest
from fault_matrix import ENGINE, FAULTS, POLICIES, TWO, Fault, faulty_stage, go_through
from stages import Pair, Stage, TextsByRanks, make_tiny_pair, texts_by_ranks

pytestmark = pytest.mark.engine

RANKS = 1


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_tiny_pair(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def plain(pair: Pair) -> TextsByRanks:
    return texts_by_ranks(pair, TWO, **ENGINE)


@pytest.fixture(scope="module", params=POLICIES)
def stage(request: pytest.FixtureRequest, pair: Pair, plain: TextsByRanks) -> Iterator[Stage]:
    with faulty_stage(pair, plain, request.param, RANKS) as stage:
        yield stage


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_text_stays_the_failure_is_counted_for_what_it_is_and_drafting_resumes(
    stage: Stage, fault: Fault
) -> None:
    go_through(stage, fault)
