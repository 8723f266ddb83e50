"""What holds while nothing is built: help works, and doing anything is refused instead of pretended."""

import pytest
from qualification.cli import main


def test_help_says_that_nothing_is_built_yet(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "not built yet" in capsys.readouterr().out


def test_running_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "not built yet" in capsys.readouterr().err
