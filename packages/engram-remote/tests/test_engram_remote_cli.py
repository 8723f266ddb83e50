"""The command line's frame: every command is there, imported only when used, and a wrong word is refused."""

import subprocess
import sys

from click.testing import CliRunner
from engram_remote import __version__
from engram_remote.cli import COMMANDS, main


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from engram_remote.cli import main;"
        "text = CliRunner().invoke(main, ['--help']).output;"
        "print(text); print(sorted(name for name in sys.modules if name.startswith('engram_remote.')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(f"  {name}" in shown for name in COMMANDS)
    assert shown.splitlines()[-1] == "['engram_remote.cli']"


def test_every_command_of_the_list_shows_its_own_help() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"Usage: main {name}")


def test_an_unknown_command_is_refused_by_name() -> None:
    result = CliRunner().invoke(main, ["bild"])
    assert result.exit_code == 2
    assert "bild" in result.output


def test_the_version_is_the_distributions() -> None:
    assert __version__ in CliRunner().invoke(main, ["--version"]).output
