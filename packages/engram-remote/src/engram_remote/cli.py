"""The command line of the tables.

Owns the list of commands; each is imported when it is asked for, so that `verify` needs no server and `--help` nothing.
"""

from importlib import import_module

import click

from engram_remote import __version__

COMMANDS = {
    "build": "Make a folder of shards from a checkpoint, or synthetic ones.",
    "verify": "Compare a folder of shards with its manifest.",
    "ident": "Print a folder's identity and its shards.",
    "size": "Predict memory, load time and lookup latency for a table and a link.",
    "serve": "Serve a folder of shards from memory.",
    "check": "Compare every row that arrives with the local shard.",
    "status": "Show a server's tables and counters.",
    "alerts": "Print the shipped alert rules for a server's metrics.",
    "bench": "Time lookups over each endpoint, and from disk.",
    "logit-ab": "Compare what two engines say, against the noise of one.",
    "probe": "Show what this host offers tables.",
}
"""What each command does, in the order of `--help`; `engram_remote.commands.NAME` defines it as `command`."""


class LazyGroup(click.Group):
    """Knows its commands by name and imports a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"engram_remote.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="engram-remote")
def main() -> None:
    """Engram tables served from another host's RAM: exact rows, or none."""
