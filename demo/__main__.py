"""`python -m demo`: see `--help`.

Exit status: 0 shown, 1 not shown, 2 wrong options, 128 + n ended by signal n (130 by Ctrl-C).
"""

import io
import os
import sys
from typing import TYPE_CHECKING

from demo.options import Options, parse

if TYPE_CHECKING:
    from pathlib import Path


def main(argv: list[str]) -> int:
    """Judge the options, and unless that was all, tell the story.  Needs nothing installed until then."""
    options = parse(argv)
    if options.check:
        print(options.environment)  # `run` makes it
        return 0
    return _run(options)


def _run(options: Options) -> int:
    """Everything in a folder of its own, which stays where its logs are needed."""
    import shutil  # what follows needs an environment with our packages
    import tempfile
    from pathlib import Path

    from demo.interruption import Interrupted, raise_on_signals
    from demo.processes import DemoError

    raise_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="spark-offload-demo-"))
    try:
        status = _tell(options, folder)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except Interrupted as interrupted:
        print(f"demo: interrupted by {interrupted}; every process was ended.", file=sys.stderr)
        status = interrupted.status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter would complain again at its end
        print("demo: nobody reads the output any more; every process was ended.", file=sys.stderr)
        status = 1
    shutil.rmtree(folder, ignore_errors=True)
    return status


def _tell(options: Options, folder: "Path") -> int:
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the model may say what the terminal cannot show
    console = Console()
    if options.engram:
        from demo import tables

        return tables.tell(options, folder, console)
    from demo import drafting, plain
    from demo.simulated import telling
    from demo.summary import conclude, show, write

    if options.engine == "sim":
        drafted = telling.draft(options, folder, console)
        alone, alone_s = telling.repeat(drafted.texts)
    else:
        drafted = drafting.draft(options, folder, console)
        alone, alone_s = plain.repeat(drafted.texts, folder, console)
    summary = conclude(drafted, alone, alone_s, options)
    show(summary, console)
    if options.json_file is not None:
        write(summary, options.json_file)
    return 0 if summary.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
