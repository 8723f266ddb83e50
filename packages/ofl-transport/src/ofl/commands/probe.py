"""`ofl probe`."""

import argparse
import json

from ofl import echo, probe, probe_text
from ofl.commands import common


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    parser = commands.add_parser("probe", help="what this build and this host can do, and the way to a peer")
    parser.add_argument("endpoint", nargs="?", metavar="ENDPOINT", help=common.ENDPOINT)
    parser.add_argument("--connect", action="store_true", help="connect once and negotiate")
    parser.add_argument("--service", default=echo.SERVICE, help="service to ask for (default %(default)s)")
    parser.add_argument("--service-version", type=common.whole(0, 65535), default=echo.VERSION, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    common.add_client_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.connect and not options.endpoint:
        raise common.Misuse("--connect needs an ENDPOINT")
    report = probe.host_report()
    good = True
    if options.endpoint:
        report["route"] = probe.endpoint_report(options.endpoint)
        good = report["route"]["ok"]
    if options.connect and good:
        report["connect"] = probe.connect_report(
            options.endpoint,
            service=options.service,
            version=options.service_version,
            timeout_ns=options.timeout_ms * 1_000_000,
            key_file=common.key_of(options),
        )
        good = report["connect"]["ok"]
    print(json.dumps(report, indent=2) if options.json else probe_text.render(report))
    return 0 if good else common.FAILED
