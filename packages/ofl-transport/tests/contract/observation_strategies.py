"""Observations for hypothesis, made from the records' own declarations."""

from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from ofl.contract.observation_v1 import KINDS, NO_TAG, Observation, Record
from ofl.contract.observation_v1.lines import INTEGER_MAX
from ofl.contract.observation_v1.records import BlindTag

TEXTS = st.text(st.characters(exclude_categories=("C", "Z")), max_size=12)
TAGS = st.just(NO_TAG) | st.binary(min_size=16, max_size=16).map(bytes.hex)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of one field."""
    if get_origin(hint) is tuple:
        return st.lists(of_type(get_args(hint)[0]), max_size=3).map(tuple)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-1, INTEGER_MAX),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: TEXTS,
        bool: st.booleans(),
        BlindTag: TAGS,
    }
    return plain[hint] if hint in plain else of_record(hint)


def of_record(made: type[Any]) -> st.SearchStrategy[Any]:
    """Records of one class."""
    hints = get_type_hints(made, include_extras=True)
    return st.builds(made, **{field.name: of_type(hints[field.name]) for field in fields(made)})


records: st.SearchStrategy[Record] = st.sampled_from(list(KINDS.values())).flatmap(of_record)
observations: st.SearchStrategy[Observation] = st.builds(
    Observation, st.integers(0, INTEGER_MAX), st.integers(0, INTEGER_MAX), records
)
