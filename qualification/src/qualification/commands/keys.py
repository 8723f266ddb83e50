"""`qualify keygen` and `qualify sign`."""

from pathlib import Path

import click
from ofl.files import publish

from qualification.commands.common import FILE, REFUSED, stop, usable
from qualification.receipts import ReceiptError
from qualification.receipts.canonical import BYTES_MAX
from qualification.receipts.files import read_given
from qualification.receipts.keys import keygen as make_keys
from qualification.receipts.keys import load_public, load_signer
from qualification.receipts.making import sign as sign_statement
from qualification.receipts.verify import read_statement


@click.command()
@click.argument("folder", type=FILE)
def keygen(folder: Path) -> None:
    """Make an ed25519 key pair in FOLDER; a key that is there is never overwritten."""
    with usable():
        private, public = make_keys(folder)
        key_id = load_public(public).keyid
    click.echo(f"{private}: private, for whoever signs; keep it from everyone else")
    click.echo(f"{public}: public, for whoever verifies")
    click.echo(f"{key_id}: the id of both, which receipts and review pages name")


@click.command()
@click.argument("statement", type=FILE)
@click.option("--key", required=True, type=FILE, help="Private key, mode 0600.")
@click.option("--out", required=True, type=FILE, help="Where the receipt goes; replaced as a whole.")
def sign(statement: Path, key: Path, out: Path) -> None:
    """Sign STATEMENT, canonical JSON of a receipt that violates no rule by itself.

    Exit status 1: it violates one, and nothing was written.  2: a file cannot be used.
    """
    with usable():
        signer = load_signer(key)
        data = read_given(statement, BYTES_MAX)
    try:
        receipt = sign_statement(read_statement(data, str(statement)), signer)
    except ReceiptError as error:
        stop(REFUSED, str(error))
    with usable():
        publish(out, receipt, synced=True)
    click.echo(f"{out}: signed")
