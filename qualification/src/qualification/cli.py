"""The command `qualify`: a group of what other modules do, each loaded when asked for.  Holds no work of its own."""

import importlib
import importlib.util
import io
import sys

import click

import qualification

COMMANDS = {
    "keygen": "qualification.commands.keys",
    "subjects": "qualification.commands.subjects",
    "plan": "qualification.runs.commands",
    "run": "qualification.runs.commands",
    "finish": "qualification.runs.commands",
    "rehearse": "qualification.runs.commands",
    "sign": "qualification.commands.keys",
    "verify": "qualification.commands.verify",
    "gate": "qualification.commands.gate",
    "review": "qualification.review.commands",
    "schema": "qualification.commands.schema",
}
"""Command -> module that has it under its own name, in the order of their use."""


class LazyGroup(click.Group):
    """Lists the commands whose module is there, and imports it when one is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of `COMMANDS`."""
        return [name for name, module in COMMANDS.items() if _is_there(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """None where there is no such command."""
        module = COMMANDS.get(cmd_name)
        if module is None or not _is_there(module):
            return None
        command = getattr(importlib.import_module(module), cmd_name)
        assert isinstance(command, click.Command), f"{module}.{cmd_name}"
        return command


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@click.group(cls=LazyGroup)
@click.version_option(qualification.__version__, prog_name="qualify")
def main() -> None:
    """Qualify exactly these bits for that platform: receipts, checks and the gate of Spark Offload."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file's name may be no text, and must still be told
            stream.reconfigure(errors="backslashreplace")
