"""Changes of JSON values, for properties: any part replaced, left out or joined by another."""

from typing import Any

from hypothesis import strategies as st

SAFE = 2**53 - 1


def json_values() -> st.SearchStrategy[Any]:
    """Values that canonical JSON can hold, short ones and those that others confuse with them."""
    near: st.SearchStrategy[Any] = st.sampled_from(
        [True, False, None, 0, 1, -1, 0.5, "", "0", "1", "PASS", "native", [], {}, "a\n", "\x7f", "ü"]
    )
    numbers = st.integers(-SAFE, SAFE) | st.floats(-SAFE, SAFE)
    scalars = near | numbers | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
        ),
        max_leaves=4,
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every part of a value, itself left out."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, part in parts:
        found += [(*path, key), *places(part, (*path, key))]
    return found


def changed_somewhere(data: st.DataObject, value: Any, values: st.SearchStrategy[Any]) -> Any:
    """The value, changed in place at one part that is drawn."""
    *path, key = data.draw(st.sampled_from(places(value)), "place")
    at = value
    for part in path:
        at = at[part]
    how = data.draw(st.sampled_from(["replace", "replace", "remove", "add"]), "how")
    if how == "remove":
        del at[key]
    elif how == "replace":
        at[key] = data.draw(values, "new")
    elif isinstance(at, dict):
        at[data.draw(st.text("abc", min_size=1, max_size=3), "key")] = data.draw(values, "new")
    else:
        at.append(data.draw(values, "new"))
    return value
