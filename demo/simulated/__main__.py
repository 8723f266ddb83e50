"""`python -m demo.simulated`: run one seed, as a failing run says, and show what happened in it."""

import logging
import sys

import click
from spark_overlay.simulation.engine_life import POLICIES, Policy
from spark_overlay.simulation.world import SimulationFailedError

from demo.simulated.scenarios import WINDOWS, policy_of, simulation, window_of


@click.command()
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Everything follows from it.")
@click.option("--policy", type=click.Choice(POLICIES), help="Default: the seed's.")
@click.option("--window", type=click.IntRange(min=0), help=f"Default: the seed's of {WINDOWS}; 0: all rows.")
@click.option("--rounds", type=click.IntRange(min=1), default=2000, show_default=True)
@click.option("--faults/--no-faults", default=True, show_default=True)
@click.option(
    "--orders",
    type=click.FloatRange(0, 1),
    help="Share of noisy rounds with an order of operators. Default: the seed's.",
)
@click.option("--verbose", is_flag=True, help="Show the overlay's log.")
def main(
    seed: int,
    policy: Policy | None,
    window: int | None,
    rounds: int,
    faults: bool,
    orders: float | None,
    verbose: bool,
) -> None:
    """Replay a seed of the simulated engine.  Exit status 1 where something does not hold."""
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, format="%(name)s: %(message)s")
    click.echo(f"policy {policy or policy_of(seed)}, window {window_of(seed) if window is None else window}")
    changes = {} if orders is None else {"orders": orders}
    run = simulation(seed, policy, window, faults=faults, **changes)
    try:
        run.run(rounds)
        run.close()
    except SimulationFailedError as error:
        raise click.ClickException(str(error)) from error
    finally:
        met = run.hazards.coverage
        for fault in sorted({fault for fault, _ in met}):
            phases = ", ".join(
                f"{phase} {count}" for (name, phase), count in sorted(met.items()) if name == fault
            )
            click.echo(f"{fault}: {phases}")
    click.echo(f"{run.rounds} rounds, {run.engines} engines, {run.said} tokens as the target alone says them")


if __name__ == "__main__":
    sys.exit(main())
