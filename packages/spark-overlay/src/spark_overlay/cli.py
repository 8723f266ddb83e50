"""The command `spark-overlay`: a group of what other modules do.  Holds no work of its own.

Owns the list of commands; each is imported when it is asked for, so that `probe` needs no more than it says.
"""

import sys
from importlib import import_module

import click

import spark_overlay

COMMANDS = {
    "probe": ("cli:probe", "Ask a worker whether it would serve this engine, and how fast."),
    "doctor": (
        "doctor.command:doctor",
        "Say what is wrong with this host, its settings and its worker, and the repair.",
    ),
    "overlay": (
        "delivery.overlay_command:overlay",
        "Lay one guarded branch over vLLM's own file, for images without plugins.",
    ),
    "stage": (
        "delivery.stage_command:stage_command",
        "Copy files to hosts, verify them there, switch, and go back.",
    ),
    "configs": ("launching.commands:configs", "List the shipped launch configs, or print one."),
    "launch": ("launch_command:launch", "Start an engine, and end it unless it has the remote drafter."),
    "unit": ("launching.commands:unit_command", "Print the systemd unit of an engine."),
    "warmup": (
        "warmup_command:warmup",
        "Send an engine short and long prompts, and check what it generates.",
    ),
    "calibrate": (
        "depth.command:calibrate",
        "Measure every draft depth on a running engine, and name the best.",
    ),
    "bench": ("bench.command:bench", "Measure what remote drafting brings, OFF and ON by turns."),
    "stats": ("stats:stats", "Show the figures of an engine."),
    "metrics": ("metrics_command:metrics", "Serve them for Prometheus."),
    "alerts": ("metrics_command:alerts", "Print the shipped alert rules."),
    "pause": ("control.command:pause", "Let a running engine draft without its worker."),
    "resume": ("control.command:resume", "Let it draft with its worker again."),
    "rearm": ("control.command:rearm", "Let it forget that its worker was refused, and ask again."),
    "support-bundle": (
        "support_bundle.command:support_bundle",
        "Write what others need to see, without prompts or keys.",
    ),
}
"""Command -> (module and name within spark_overlay, what it does), in the order of `--help`."""


class LazyGroup(click.Group):
    """Knows its commands by name and imports a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"spark_overlay.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(spark_overlay.__version__, prog_name="spark-overlay")
def main() -> None:
    """The engine side of Spark Offload: draft through a remote DSpark worker."""


@click.command(
    "probe",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def probe(arguments: tuple[str, ...]) -> None:
    """Ask a worker whether it would serve this engine, and how fast."""
    from spark_overlay.probe import main as probe_main

    sys.exit(probe_main(arguments))
