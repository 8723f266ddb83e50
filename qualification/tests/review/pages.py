"""A page as a reader without eyes has it: elements in order, words by class, ids, links."""

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from qualification.checks.registry import all_checks
from qualification.review.gather import gather
from qualification.review.page import Asked, render
from receipt_corpus import sound

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}


@dataclass
class Page(HTMLParser):
    """elements: tag and names of its attributes.  words: text of verdicts and the like.  wrong: what is ill formed."""

    html: str
    elements: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    links: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    headers_without_scope: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, bool]] = []
        self.feed(self.html)
        self.close()
        self.wrong += [f"<{tag}> is never closed" for tag, _ in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, tuple(sorted(values))))
        if "id" in values:
            self.ids[values["id"]] += 1
        if tag == "a":
            self.links.append(values.get("href", ""))
        if tag == "th":
            self.headers_without_scope += "scope" not in values
        if tag not in VOID:
            word = "word" in values.get("class", "").split()
            self._open.append((tag, word))
            if word:
                self.words.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.ids.update(value or "" for name, value in attrs if name == "id")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop()[0] != tag:
            self.wrong.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if any(word for _, word in self._open):
            self.words[-1] += data

    @property
    def verdicts(self) -> set[str]:
        """Words that stand out, without their marks."""
        return {word.strip("✓✗○‖?- ").strip() for word in self.words}

    @property
    def plain(self) -> str:
        """All text."""
        return "".join(self.text)


def page_of(folder: Path, asked: Asked | None = None) -> Page:
    """The page about a folder of runs that the corpus's key signed."""
    return Page(render(gather(folder, sound.KEY), asked or Asked(folder.name), all_checks()))
