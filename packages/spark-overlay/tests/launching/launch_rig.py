"""A deployment's files, and what the command line makes of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from spark_overlay.launch_command import launch

IDENTITY, MARKOV = "0" * 63 + "1", "0" * 63 + "2"
SITE = """
target = "/models/target"
drafter = "{drafter}"
worker = "tcp://10.0.0.1:18620"
identity_file = "{identity}"
vllm_version = "0.32.0"
"""


@dataclass(frozen=True)
class Place:
    """Where one deployment's files lie."""

    root: Path

    @property
    def site(self) -> Path:
        return self.root / "site.toml"

    @property
    def drafter(self) -> Path:
        return self.root / "drafter"

    @property
    def identity(self) -> Path:
        return self.root / "identity.json"

    def write(self, more: str = "", name: str = "site.toml") -> Path:
        """The site, with more at its end."""
        text = SITE.format(drafter=self.drafter, identity=self.identity)
        path = self.root / name
        path.write_text(text + more)
        return path

    def config(self, text: str, name: str = "own.toml") -> Path:
        path = self.root / name
        path.write_text(text)
        return path

    def invoke(self, *options: str, config: str = "C-capacity") -> Result:
        return CliRunner().invoke(launch, ["--config", config, "--site", str(self.site), *options])

    def printed(self, *options: str, config: str = "C-capacity", form: str = "json") -> Any:
        """What --print says, as an object where it is JSON."""
        done = self.invoke("--print", "--format", form, *options, config=config)
        assert (done.exit_code, done.stderr) == (0, "")
        return json.loads(done.stdout) if form == "json" else done.stdout

    def refused(self, *options: str, config: str = "C-capacity") -> list[str]:
        """The lines with which nothing was started, without what each begins with."""
        done = self.invoke("--print", *options, config=config)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        lines = done.stderr.splitlines()
        assert all(line.startswith("spark-overlay: ") for line in lines)
        return [line.removeprefix("spark-overlay: ").replace(f"{self.root}/", "") for line in lines]


def option(command: list[str], name: str) -> str:
    """The value of an option."""
    return command[command.index(name) + 1]


def speculative(command: list[str]) -> Any:
    return json.loads(option(command, "--speculative-config"))
