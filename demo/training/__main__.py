"""The command line of the training; see docs/demo-pair.md for what each step needs."""

import json
import sys
from pathlib import Path

import click

from demo.training import corpus
from demo.training.export import PAIR, add_to_record, export_pair
from demo.training.export import write_manifest as write_pair_manifest
from demo.training.settings import Settings

_DATA = Path(".cache/demo-training/data")
_RUN = Path(".cache/demo-training/run")
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group()
def main() -> None:
    """Make the demo pair: corpus, train, export, measure."""


@main.command("corpus")
@click.option(
    "--source", type=_FOLDER, help="Lib folder of the pinned Python; default: the running Python's."
)
@click.option("--data", type=_FOLDER, default=_DATA, show_default=True)
@click.option("--write-manifest", is_flag=True, help="Pin the source's files instead of checking them.")
def corpus_command(source: Path | None, data: Path, write_manifest: bool) -> None:
    """Check the corpus against its digests and turn it into tokens."""
    root = source or corpus.standard_library()
    if write_manifest:
        click.echo(f"{corpus.write_manifest(root)} files pinned")
    try:
        facts = corpus.prepare(root, data, Settings().target.vocab)
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None
    click.echo(facts)


@main.command()
@click.option("--data", type=_FOLDER, default=_DATA, show_default=True)
@click.option("--out", type=_FOLDER, default=_RUN, show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="CPU threads.")
@click.option("--steps-scale", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True)
@click.option("--start-target", type=click.Path(path_type=Path, exists=True), help="Weights to start from.")
@click.option("--fit-seconds-max", type=click.FloatRange(0, min_open=True), help="Limit of each fit.")
def train(
    data: Path,
    out: Path,
    device: str,
    threads: int,
    steps_scale: float,
    start_target: Path | None,
    fit_seconds_max: float | None,
) -> None:
    """Train target, drafter and confidence; measure them in plain torch."""
    import torch

    from demo.training.pipeline import Training

    torch.set_num_threads(threads)
    settings = Settings()
    if steps_scale < 1:
        settings = settings.scaled(steps_scale)
    Training(settings, data, out, device).run(start_target, fit_seconds_max)


@main.command()
@click.option("--run", type=_FOLDER, default=_RUN, show_default=True, help="Where `train` wrote.")
@click.option("--data", type=_FOLDER, default=_DATA, show_default=True)
@click.option("--pair", type=_FOLDER, default=PAIR)
def export(run: Path, data: Path, pair: Path) -> None:
    """Write the pair's folders, record and manifest."""
    click.echo(export_pair(run, data, Settings(), pair))


@main.command()
@click.option("--pair", type=_FOLDER, default=PAIR)
def manifest(pair: Path) -> None:
    """Digest the pair's files again, after one was edited."""
    click.echo(write_pair_manifest(pair))


@main.command()
@click.option("--data", type=_FOLDER, default=_DATA, show_default=True)
@click.option("--pair", type=_FOLDER, default=PAIR)
@click.option("--prompts", type=click.IntRange(1), default=96, show_default=True)
@click.option("--new-tokens", type=click.IntRange(1, 900), default=128, show_default=True)
@click.option(
    "--record/--no-record", default=True, show_default=True, help="Keep the figures in record.json."
)
def measure(data: Path, pair: Path, prompts: int, new_tokens: int, record: bool) -> None:
    """Measure acceptance on a real vLLM engine; needs the engine environment."""
    from demo.training.measure import measure_pair

    figures = measure_pair(pair, data, Settings(), prompts, new_tokens)
    click.echo(json.dumps(figures, indent=1))
    if record:
        add_to_record({"engine": figures}, pair)


if __name__ == "__main__":
    sys.exit(main())
