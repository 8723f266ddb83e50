"""`python -m x86_worker` is the command `x86-worker`."""

from x86_worker.cli import main

main(prog_name="x86-worker")
