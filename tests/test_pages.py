"""What a reader starts from leads to everything: pages, commands, and links that end somewhere."""

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "packages"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *PACKAGES.glob("*/*.md"),
    *(ROOT / "docs").rglob("*.md"),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of every heading, as GitHub makes them: small letters, blanks as dashes, other marks left out."""
    titles = re.findall(r"^#+ (.+)$", without_blocks(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def commands() -> dict[str, set[str]]:
    from engram_remote.cli import main as tables
    from ofl import commands as transport
    from spark_overlay.cli import main as overlay
    from x86_worker.cli import main as worker

    return {
        "spark-overlay": set(overlay.commands),
        "x86-worker": set(worker.commands),
        "engram-remote": set(tables.commands),
        "ofl-transport": {module.name for module in pkgutil.iter_modules(transport.__path__)} - {"common"},
    }


@pytest.mark.parametrize("package", ["spark-overlay", "x86-worker", "engram-remote", "ofl-transport"])
def test_every_command_stands_in_the_readme_of_its_package(package: str) -> None:
    text = (PACKAGES / package / "README.md").read_text(encoding="utf-8")
    program = "ofl" if package == "ofl-transport" else package
    missing = {
        name
        for name in commands()[package]
        if not re.search(rf"{program} +{name}\b", text) and f"`{name}`" not in text
    }
    assert missing == set()


def test_every_page_of_operations_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = sorted((ROOT / "docs" / "operations").glob("*.md"))
    assert len(pages) > 15
    assert [page.name for page in pages if f"(docs/operations/{page.name})" not in readme] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for target in LINK.findall(without_blocks(page)):
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        found = (page.parent / place) if place else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            lost.append(target)
    assert lost == []
