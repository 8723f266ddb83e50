"""`ofl doctor`."""

import argparse
import json
from pathlib import Path

from ofl.commands import common
from ofl.doctor import report
from ofl.doctor.findings import exit_status
from ofl.doctor.gather import Wanted
from ofl.doctor.host import CONNECT_S_MAX, Host
from ofl.doctor.peers import ReportError
from ofl.doctor.run import examine

COMMAND = "ofl doctor"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    parser = commands.add_parser(
        "doctor",
        help="whether this host is fit for offload, and what repairs it",
        epilog="Exit status: 0 nothing must be repaired, 1 something must, 2 used wrongly.",
    )
    parser.add_argument(
        "endpoint",
        nargs="?",
        metavar="ENDPOINT",
        help=f"of a peer to be reached from here: {common.ENDPOINT}",
    )
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ENDPOINT",
        help="what is to listen here while nobody does; repeatable",
    )
    parser.add_argument("--connect", action="store_true", help="make a TCP connection to ENDPOINT, too")
    parser.add_argument(
        "--timeout-s", type=common.seconds(0.01, CONNECT_S_MAX), default=5.0, metavar="S", help="of that one"
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="what doctor --json printed on another host, to be compared with; repeatable",
    )
    parser.add_argument(
        "--tables-mib", type=common.whole(0, 1 << 30), default=0, metavar="MIB", help="tables to be held here"
    )
    parser.add_argument("--huge-pages", action="store_true", help="the tables are to lie in huge pages")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    common.add_key_file(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.connect and not options.endpoint:
        raise common.Misuse("--connect needs an ENDPOINT")
    if options.huge_pages and not options.tables_mib:
        raise common.Misuse("--huge-pages needs --tables-mib")
    wanted = Wanted(
        endpoint=options.endpoint,
        listen=tuple(options.listen),
        key_file=options.key_file,
        connect_s=options.timeout_s if options.connect else 0.0,
        tables_mib=options.tables_mib,
        huge_pages=options.huge_pages,
    )
    try:
        facts, findings = examine(Host(), wanted, peers=options.peer)
    except ReportError as error:
        raise common.Misuse(f"--peer: {error}") from error
    if options.json:
        print(json.dumps(report.document(COMMAND, facts, findings), indent=2))
    else:
        print(report.render(COMMAND, facts, findings))
    return exit_status(findings)
