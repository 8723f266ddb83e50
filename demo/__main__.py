"""`python -m demo`: see `--help`.  Exit status: 0 shown, 1 not shown, 2 wrong options, 130 interrupted."""

import sys

from demo.options import Options, parse


def main(argv: list[str]) -> int:
    """Judge the options, and unless that was all, tell the story.  Needs nothing installed until then."""
    options = parse(argv)
    if options.check:
        return 0
    return _run(options)


def _run(options: Options) -> int:
    import json  # what follows needs the engine environment
    import shutil
    import tempfile
    from pathlib import Path

    from rich.console import Console

    from demo.drafting import draft
    from demo.plain import repeat
    from demo.processes import DemoError
    from demo.summary import conclude, show

    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="spark-offload-demo-"))
    try:
        drafted = draft(options, folder, console)
        plain, plain_s = repeat(drafted.texts, folder, console)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; every process was ended.", file=sys.stderr)
        return 130
    summary = conclude(drafted, plain, plain_s, options.deadline_ms)
    show(summary, console)
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(summary.figures, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder)
    return 0 if summary.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
