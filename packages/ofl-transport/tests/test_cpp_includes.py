"""Headers include what they name: a standard library that drags less in than ours does must still compile them."""

import re
from pathlib import Path

import pytest

CPP = Path(__file__).parents[1] / "cpp"
HEADERS = sorted([*CPP.glob("*.hpp"), *CPP.glob("tests/*.hpp")])
HOME = {
    r"std::u?int(8|16|32|64)_t": "cstdint",
    r"std::size_t": "cstddef",
    r"std::byte\b": "cstddef",
    r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b": "memory",
    r"std::string\b": "string",
    r"std::string_view\b": "string_view",
    r"std::vector\b": "vector",
    r"std::deque\b": "deque",
    r"std::map\b": "map",
    r"std::unordered_map\b": "unordered_map",
    r"std::array\b": "array",
    r"std::optional\b": "optional",
    r"std::variant\b": "variant",
    r"std::span\b": "span",
    r"std::function\b": "functional",
    r"std::atomic\b": "atomic",
    r"std::(mutex|lock_guard|unique_lock|scoped_lock)\b": "mutex",
    r"std::condition_variable\b": "condition_variable",
    r"std::j?thread\b": "thread",
    r"std::(move|forward|exchange|swap|pair)\b": "utility",
    r"std::bad_alloc\b": "new",
    r"std::system_error\b": "system_error",
}


def test_there_are_headers() -> None:
    assert len(HEADERS) > 5


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_a_header_includes_the_home_of_each_standard_name_it_uses(header: Path) -> None:
    text = header.read_text(encoding="utf-8")
    included = set(re.findall(r"#include <([^>]+)>", text))
    code = re.sub(r"//[^\n]*", "", text)
    missing = {home for name, home in HOME.items() if re.search(name, code)} - included
    assert not missing, f"{header.name} names what these declare and does not include them: {sorted(missing)}"
