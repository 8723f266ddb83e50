"""What docs/operations says from the example site: the containers' command lines and what two hosts run.

Run as a script it writes them; the test beside it compares.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from ofl.documents import rewrite
from spark_overlay.launching.container import arguments_inside, container
from spark_overlay.launching.formats import shell
from spark_overlay.launching.layers import Launch, read_launch
from spark_overlay.launching.render import render

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs" / "operations"
EXAMPLE = ROOT / "examples" / "launch" / "site.toml"
SITE = Path("/etc/spark-overlay/site.toml")
"""Where the docs say that the example lies."""
CONFIG = "C-capacity"


def example(*settings: str) -> Launch:
    """The example site with our config, as if it lay where the docs say."""
    return replace(read_launch(CONFIG, EXAMPLE, settings), files=(SITE,))


def container_block(runtime: str, rank: int) -> str:
    """A container's command line as a block."""
    settings = () if runtime == "docker" else ("container.runtime=podman",)
    launch = example(*settings)
    inside = arguments_inside(CONFIG, SITE, settings, rank)
    return block(container(launch, render(launch, rank, here=False), inside))


def shell_block(rank: int) -> str:
    """What a host of this rank runs, with the digests of the identity file."""
    launch = example()
    with tempfile.TemporaryDirectory() as folder:
        identity = Path(folder) / "identity.json"
        identity.write_text(f'{{"identity": "{"1" * 64}", "markov_identity": "{"2" * 64}"}}')
        site = launch.site.model_copy(update={"identity_file": str(identity)})
        return block(shell(render(replace(launch, site=site), rank)))


def block(text: str) -> str:
    return f"```sh\n{text}```\n"


def parts() -> dict[str, dict[str, str]]:
    """The generated parts by file and name."""
    return {
        "container.md": {
            "docker": container_block("docker", 0),
            "podman": container_block("podman", 0),
        },
        "launch.md": {
            "site": f"```toml\n{EXAMPLE.read_text(encoding='utf-8')}```\n",
            "rank 0": shell_block(0),
            "rank 1": shell_block(1),
        },
    }


if __name__ == "__main__":
    rewrite(DOCS, parts())
