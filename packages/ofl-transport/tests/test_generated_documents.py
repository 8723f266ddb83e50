"""Generated parts of documents: each is made anew where it stands, and nothing else changes."""

from pathlib import Path

import pytest
from ofl.documents import rewrite, rewritten

TEXT = "# A\n<!-- begin a -->\nold\n<!-- end a -->\nbetween\n<!-- begin b -->\n<!-- end b -->\nend\n"


def test_each_part_is_made_anew_where_it_stands() -> None:
    made = rewritten(TEXT, {"b": "new b\n", "a": "new a\n"})
    assert made == (
        "# A\n<!-- begin a -->\nnew a\n<!-- end a -->\nbetween\n<!-- begin b -->\nnew b\n<!-- end b -->\nend\n"
    )
    assert rewritten(made, {"a": "new a\n", "b": "new b\n"}) == made
    assert rewritten(TEXT, {}) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- begin a -->\n",
        "<!-- end a -->",
        "<!-- end a -->\n<!-- begin a -->\n",
        "<!-- begin ab -->\n<!-- end ab -->",
    ],
)
def test_a_document_without_the_part_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ValueError, match="there is no part 'a'"):
        rewritten(text, {"a": "x\n"})


def test_the_documents_of_a_folder_are_written_with_their_parts(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(TEXT)
    (tmp_path / "other.md").write_text(TEXT)
    rewrite(tmp_path, {"a.md": {"a": "new a\n"}})
    assert (tmp_path / "a.md").read_text() == rewritten(TEXT, {"a": "new a\n"})
    assert (tmp_path / "other.md").read_text() == TEXT
