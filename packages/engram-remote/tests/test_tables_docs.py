"""The documents say what the code says: header, figures, schema, and every option that they show."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from engram_format_docs import FORMAT, SIZE, documents
from engram_remote.cli import main


@pytest.mark.parametrize("file", documents(), ids=lambda file: file.name)
def test_generated_parts_are_up_to_date(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == documents()[file]


@pytest.mark.parametrize("file", [FORMAT, SIZE], ids=lambda file: file.name)
def test_commands_in_the_documents_are_those_that_exist(file: Path) -> None:
    lines = re.findall(r"^engram-remote (.*?)(?: +#.*)?$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        command, *words = line.split()
        shown = CliRunner().invoke(main, [command, "--help"]).output
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", shown), f"{command} has no {option}"
