"""Every way in which rows reach this host: each endpoint, plain, with checksums and bounced; and the local shards,
each way in which they can be read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engram_remote import native
from engram_remote.check.cases import corner_cases, random_cases
from engram_remote.check.expected import ExpectedRows
from engram_remote.check.refusals import SMALL_BATCH, RefusalReport, Refusals
from engram_remote.check.rows import GENERATED_EVERY, Advance, RowsCheck, RowsReport
from engram_remote.client import Client, ClientOptions
from engram_remote.client_options import PATIENT_HEARTBEAT_NS, PATIENT_LOSS_NS
from engram_remote.native import EngramError, InvalidError
from engram_remote.tables.manifest import Manifest

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class CheckOptions:
    """What is checked.

    rows: random rows over each endpoint and from the shards; the other ways get every corner, and no random rows.
    """

    tables: Path
    rank: int
    endpoints: tuple[str, ...]
    rows: int
    seed: int
    batch_rows_max: int
    timeout_ns: int
    key_file: Path | None = None


@dataclass(frozen=True)
class Way:
    """options: of its client.  outcome: where its rows must come from.  rows: random ones."""

    name: str
    options: ClientOptions
    outcome: str
    rows: int


def ways(options: CheckOptions) -> list[Way]:
    """In the order in which they are checked."""
    plain = ClientOptions(
        options.tables,
        options.rank,
        key_file=options.key_file,
        batch_rows_max=options.batch_rows_max,
        timeout_ns=options.timeout_ns,
        heartbeat_ns=PATIENT_HEARTBEAT_NS,
        loss_ns=PATIENT_LOSS_NS,
    )
    found = []
    for endpoint in options.endpoints:
        remote = replace(plain, endpoint=endpoint, required=True)
        found.append(Way(endpoint, remote, "remote", options.rows))
        if not native.missing("checksum"):
            found.append(Way(f"{endpoint}, checksums", replace(remote, checksum=True), "remote", 0))
        found.append(Way(f"{endpoint}, bounced", replace(remote, bounce=True), "remote", 0))
    found.append(Way("local shards", plain, "local", options.rows))
    found.append(Way("local shards, pread", replace(plain, pread=True), "local", 0))
    found.append(Way("local shards, page cache", replace(plain, buffered=True), "local", 0))
    found.append(Way("local shards, one thread", replace(plain, pread=True, read_threads=0), "local", 0))
    return found


def check_way(
    way: Way, manifest: Manifest, tables: Sequence[ExpectedRows], seed: int, advance: Advance
) -> RowsReport:
    """Check one way; where no client can be had the report says so, and has not passed.

    Raises InvalidError for options that no client takes, whoever serves it, and PreflightError as `RowsCheck`.
    """
    random = np.random.default_rng(seed)
    try:
        with Client(way.options, manifest) as client:
            check = RowsCheck(client, tables, way.name, way.outcome)
            rows_max = way.options.batch_rows_max
            every = 1 if way.rows else GENERATED_EVERY
            check.run(corner_cases(tables, rows_max, random), lambda _: None, generated_every=every)
            cases = random_cases(tables, way.rows, rows_max, random)
            check.run(cases, advance, generated_every=GENERATED_EVERY)
            return check.report
    except InvalidError:
        raise
    except EngramError as error:
        return RowsReport(way.name, "none", faults=[str(error)])


def check_refusals(options: CheckOptions, manifest: Manifest) -> Iterator[RefusalReport]:
    """What each endpoint must refuse."""
    for endpoint in options.endpoints:
        batch_rows = min(SMALL_BATCH, options.batch_rows_max)
        yield from Refusals(endpoint, manifest, options.rank, options.key_file, batch_rows).run()


def expected_tables(options: CheckOptions, manifest: Manifest) -> list[ExpectedRows]:
    """One for each layer, in the manifest's order.  Raises ShardError, OSError."""
    return [ExpectedRows(options.tables, manifest, entry.layer, options.rank) for entry in manifest.layers]


def random_rows_in_all(options: CheckOptions) -> int:
    """What progress is measured by."""
    return sum(way.rows for way in ways(options))
