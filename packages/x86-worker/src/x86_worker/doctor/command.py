"""`x86-worker doctor`: the command line over `doctor`."""

import json
import os
import re
import sys
from pathlib import Path

import click
from ofl.doctor import report
from ofl.doctor.findings import Facts, Finding, exit_status
from ofl.doctor.gather import Wanted
from ofl.doctor.host import Host
from ofl.doctor.peers import ReportError
from ofl.doctor.run import examine

from x86_worker.doctor.asks import Examined, WorkerAsks, worker_facts
from x86_worker.doctor.checks import WORKER_CHECKS
from x86_worker.problem import Problem, problems_as_sentences

COMMAND = "x86-worker doctor"
_FOLDER = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")


def _device(_context: click.Context, _option: click.Parameter, text: str) -> str:
    if not _DEVICE.fullmatch(text):
        raise Problem(f"--device: cpu, cuda or cuda:N is needed, not {text!r}")
    return text


def examine_worker(
    host: Host, asks: WorkerAsks, examined: Examined, wanted: Wanted, peers: tuple[Path, ...] = ()
) -> tuple[Facts, list[Finding]]:
    """Facts and findings of a worker's host.  Raises CheckpointError, EndpointError and ReportError."""
    more = worker_facts(asks, examined)
    return examine(host, wanted, peers=peers, checks=WORKER_CHECKS, more=more)


@click.command("doctor")
@click.option("--drafter", type=_FOLDER, required=True, help="The drafter's folder, as vLLM loads it.")
@click.option("--target", type=_FOLDER, help="The target's folder.  [default: the drafter's]")
@click.option("--device", default="cpu", callback=_device, show_default=True, help="cpu, cuda or cuda:N.")
@click.option(
    "--listen", "listen", multiple=True, metavar="ENDPOINT", help="As of serve, while it does not run."
)
@click.option("--key-file", type=click.Path(path_type=Path), metavar="FILE", help="As of serve.")
@click.option("--identity-file", type=_FILE, help="identity.json that engines are configured from.")
@click.option("--no-digest", is_flag=True, help="Do not read all weights for the identities.")
@click.option(
    "--peer",
    "peers",
    type=_FILE,
    multiple=True,
    help="What doctor --json printed on another host.  Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    drafter: Path,
    target: Path | None,
    device: str,
    listen: tuple[str, ...],
    key_file: Path | None,
    identity_file: Path | None,
    no_digest: bool,
    peers: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Say whether this host is fit to serve a drafter, and what repairs it.

    Exit status: 0 nothing must be repaired, 1 something must, 2 used wrongly.
    """
    examined = Examined(os.environ, drafter, target or drafter, device, not no_digest, identity_file)
    wanted = Wanted(role="worker", listen=listen, key_file=None if key_file is None else str(key_file))
    with problems_as_sentences():
        try:
            facts, findings = examine_worker(Host(), WorkerAsks(), examined, wanted, peers)
        except ReportError as error:
            raise Problem(f"--peer: {error}") from error
    if as_json:
        click.echo(json.dumps(report.document(COMMAND, facts, findings), indent=2))
    else:
        click.echo(report.render(COMMAND, facts, findings))
    sys.exit(exit_status(findings))
