"""The demo's options, judged before anything is installed: the standard library only.

`parse` raises SystemExit(2) with one sentence for whatever it does not accept.
"""

import argparse
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

PAIR = Path(__file__).parent / "pair"
TOKENS = 256
TOKENS_MAX = 900
"""With a prompt of usual length this stays inside the pair's 1,024 positions; the text ends where they do."""
FROM = "SPARK_OFFLOAD_FROM"
"""Where `run` was called from: it goes to the repository's root, and a relative --json means the caller's folder."""
PROMPT_BYTES_MAX = 400
DRILL_OUTAGE_TOKENS = 16
DRILL_GOOD_ROUNDS = 100
DRILL_ROUND = 20
ENGINES = ("vllm", "sim")
TABLE_ROWS = 400_000
TABLE_ROWS_MIN = 100_000
TABLE_ROWS_MAX = 50_000_000
"""13 GB of each of the two layers, on disk and in the server's memory."""
PORT = 18620


@dataclass(frozen=True)
class Options:
    """What the demo was asked to do.

    engine: `vllm`, or `sim` for the simulated one, which needs no vLLM and no torch.  engram: the story of the tables
    instead, which needs no engine.  table_rows: of each of its layers.  deadline_ms: of one round.
    tokens: to generate, without a drill.  drill_round: the round at which the worker dies.
    """

    engine: str
    prompt: str
    tokens: int
    drill: bool
    drill_round: int
    json_file: Path | None
    port: int
    deadline_ms: int
    check: bool
    engram: bool = False
    table_rows: int = 0

    @property
    def environment(self) -> str:
        """What `run` makes: `vllm`, or `sim`, which has our packages alone."""
        return "sim" if self.engram else self.engine


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn; SystemExit is just that
        self.exit(2, f"demo: {message}\n")


def parse(argv: list[str]) -> Options:
    """Options from the command line, checked; the port is tried unless port 0 was asked for."""
    parser = _Parser(
        prog="./run demo",
        allow_abbrev=False,
        description="A real vLLM engine (CPU) drafts through a remote worker; the text is compared with its own. "
        "With --engram: tables are served from another process, every row is compared, lookups are timed.",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="vllm",
        help="vllm: the real one (default); sim: a simulated one over token ids, in seconds and without vLLM",
    )
    parser.add_argument(
        "--engram",
        action="store_true",
        help="the tables instead of the drafter; takes --json and --table-rows alone",
    )
    parser.add_argument(
        "--table-rows",
        type=int,
        help=f"with --engram: rows of each of two layers, {TABLE_ROWS_MIN} .. {TABLE_ROWS_MAX} (default {TABLE_ROWS})",
    )
    parser.add_argument("--prompt", help="text to continue (Python source suits the small model best)")
    parser.add_argument(
        "--tokens", type=int, help=f"tokens to generate, 16 .. {TOKENS_MAX} (default {TOKENS})"
    )
    parser.add_argument(
        "--drill",
        action="store_true",
        help="kill the worker in the middle, start it again, go on; its length is the drill's, so without --tokens",
    )
    parser.add_argument(
        "--drill-round", type=int, help=f"round at which the worker is killed (default {DRILL_ROUND})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there too")
    parser.add_argument("--port", type=int, help=f"the worker's TCP port on 127.0.0.1 (default {PORT})")
    parser.add_argument("--deadline-ms", type=int, default=500, help="deadline of one round (default 500)")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    prompt = default_prompt() if given.prompt is None else given.prompt
    if given.json is not None and str(given.json) != ".":
        given.json = Path(os.environ.get(FROM, ""), given.json)
    for fault in _faults(given, prompt):
        parser.error(fault)
    return Options(
        given.engine,
        prompt,
        TOKENS if given.tokens is None else given.tokens,
        given.drill,
        DRILL_ROUND if given.drill_round is None else given.drill_round,
        given.json,
        PORT if given.port is None else given.port,
        given.deadline_ms,
        given.check,
        given.engram,
        TABLE_ROWS if given.table_rows is None else given.table_rows,
    )


def default_prompt() -> str:
    """The first of the prompts that are shipped with the pair."""
    return prompts()[0]


def prompts() -> list[str]:
    """The prompts that are shipped with the pair, best first."""
    texts = json.loads((PAIR / "prompts.json").read_text(encoding="utf-8"))
    return [str(text) for text in texts["prompts"]]


def _faults(given: argparse.Namespace, prompt: str) -> list[str]:
    faults = []
    if not prompt.strip():
        faults.append("--prompt: the text is empty.")
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        # What the command line carries and the locale cannot read, Python keeps as lone surrogates.
        return [*faults, "--prompt: the text is not valid UTF-8."]
    if (size := len(prompt.encode())) > PROMPT_BYTES_MAX:
        faults.append(
            f"--prompt: {size} bytes are too many for the small model; {PROMPT_BYTES_MAX} is the limit."
        )
    if given.tokens is not None and given.drill:
        faults.append("--tokens: it means nothing with --drill, which ends when drafting has come back.")
    if given.tokens is not None and not 16 <= given.tokens <= TOKENS_MAX:
        faults.append(f"--tokens: {given.tokens} is outside 16 .. {TOKENS_MAX}.")
    if given.drill_round is not None and not given.drill:
        faults.append("--drill-round: it means nothing without --drill.")
    if given.drill_round is not None and not 1 <= given.drill_round <= 200:
        faults.append(f"--drill-round: {given.drill_round} is outside 1 .. 200.")
    if not 1 <= given.deadline_ms <= 60_000:
        faults.append(f"--deadline-ms: {given.deadline_ms} is outside 1 .. 60000.")
    faults += _engram_faults(given)
    faults += [] if given.engram else _port_faults(given)
    if given.json is not None:
        folder = given.json.absolute().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            faults.append(f"--json: {folder} is not a folder that can be written to.")
        elif given.json.is_dir():
            faults.append(f"--json: {given.json} is a folder.")
        elif given.json.exists() and not os.access(given.json, os.W_OK):
            faults.append(f"--json: {given.json} cannot be written to.")
    return faults


def _engram_faults(given: argparse.Namespace) -> list[str]:
    if not given.engram:
        return [] if given.table_rows is None else ["--table-rows: it means nothing without --engram."]
    defaults = {
        "engine": "vllm",
        "prompt": None,
        "tokens": None,
        "drill": False,
        "port": None,
        "deadline_ms": 500,
    }
    faults = [
        f"--{name.replace('_', '-')}: it means nothing with --engram."
        for name, default in defaults.items()
        if getattr(given, name) != default
    ]
    rows = TABLE_ROWS if given.table_rows is None else given.table_rows
    if not TABLE_ROWS_MIN <= rows <= TABLE_ROWS_MAX:
        faults.append(f"--table-rows: {rows} is outside {TABLE_ROWS_MIN} .. {TABLE_ROWS_MAX}.")
    return faults


def _port_faults(given: argparse.Namespace) -> list[str]:
    if given.engine == "sim":
        return [] if given.port is None else ["--port: it means nothing with --engine sim."]
    port = PORT if given.port is None else given.port
    if not 1024 <= port <= 65535:
        return [f"--port: {port} is outside 1024 .. 65535."]
    if busy := _busy(port):
        return [f"--port: {port} on 127.0.0.1 cannot be used: {busy}; choose another."]
    return []


def _busy(port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return None
