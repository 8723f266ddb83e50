"""A rendering as text: for a reader, a shell, a unit's environment file, or a program.

Every form says the same and is free of secrets, as the rendering is.
"""

import json
import re
import shlex
from collections.abc import Callable

from spark_overlay.launching.problems import ConfigError, Problem
from spark_overlay.launching.render import Rendering

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./?-]*", re.ASCII)
"""A value that a shell and systemd take as it is; so does `docker --env-file`, which knows no quotes."""
_ESCAPED = str.maketrans({character: f"\\{character}" for character in '"\\$`'})


def shell(rendering: Rendering) -> str:
    """A command line that a shell takes, one option a line."""
    words = [f"{name}={shlex.quote(value)}" for name, value in rendering.environment.items()]
    return continued("env", words, lines_of(rendering.command)) + "\n"


def env(rendering: Rendering) -> str:
    """NAME=VALUE lines, as a POSIX shell's `.` and systemd's EnvironmentFile take them, the command as a comment.

    Raises ConfigError where a value or the command has more than one line.
    """
    command = shlex.join(rendering.command)
    values = {f"environment.{name}": value for name, value in rendering.environment.items()}
    for field, value in {**values, "command": command}.items():
        if "\n" in value or "\r" in value:
            raise ConfigError([Problem("a value of two lines fits no such file", "--format env", field)])
    lines = [f"{name}={_env_word(value)}" for name, value in rendering.environment.items()]
    return "\n".join([*lines, f"# {command}"]) + "\n"


def _env_word(value: str) -> str:
    """The value, quoted where it must be in the one way that means the same to both readers.

    Within double quotes both take a backslash before `"`, `\\`, `$` and `` ` `` away, and nothing else.
    """
    return value if _PLAIN.fullmatch(value) else f'"{value.translate(_ESCAPED)}"'


def as_json(rendering: Rendering) -> str:
    """One object: config, rank, environment and command."""
    return (
        json.dumps(
            {
                "config": rendering.name,
                "rank": rendering.rank,
                "environment": dict(rendering.environment),
                "command": list(rendering.command),
            },
            indent=2,
        )
        + "\n"
    )


FORMATS: dict[str, Callable[[Rendering], str]] = {"shell": shell, "env": env, "json": as_json}


def lines_of(words: tuple[str, ...]) -> list[str]:
    """The words quoted, each option with its values in one line."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [" ".join(line) for line in lines]


def continued(first: str, *groups: list[str]) -> str:
    """One command over several lines."""
    return " \\\n    ".join([first, *(line for group in groups for line in group)])
