"""The command `spark-overlay`: a group of what other modules do.  Holds no work of its own."""

import sys

import click

import spark_overlay
from spark_overlay.bench.command import bench
from spark_overlay.control.command import pause, rearm, resume
from spark_overlay.delivery.overlay_command import overlay
from spark_overlay.delivery.stage_command import stage_command
from spark_overlay.depth.command import calibrate
from spark_overlay.doctor.command import doctor
from spark_overlay.launch_command import launch
from spark_overlay.launching.commands import configs, unit_command
from spark_overlay.metrics_command import alerts, metrics
from spark_overlay.stats import stats
from spark_overlay.support_bundle.command import support_bundle
from spark_overlay.warmup_command import warmup


@click.group()
@click.version_option(spark_overlay.__version__, prog_name="spark-overlay")
def main() -> None:
    """The engine side of Spark Offload: draft through a remote DSpark worker."""


@main.command(
    "probe",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def probe(arguments: tuple[str, ...]) -> None:
    """Ask a worker whether it would serve this engine, and how fast."""
    from spark_overlay.probe import main as probe_main

    sys.exit(probe_main(arguments))


main.add_command(calibrate)
main.add_command(stats)
main.add_command(launch)
main.add_command(configs)
main.add_command(unit_command)
main.add_command(metrics)
main.add_command(alerts)
main.add_command(doctor)
main.add_command(support_bundle)
main.add_command(warmup)
main.add_command(bench)
main.add_command(overlay)
main.add_command(pause)
main.add_command(resume)
main.add_command(rearm)
main.add_command(stage_command)
