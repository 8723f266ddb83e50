"""What launch configs say of vLLM's releases is so in their sources: the dropped block, and how hosts are joined."""

import os
import re
from pathlib import Path

import pytest
from spark_overlay.launching.combinations import DROP, DROPS
from spark_overlay.launching.names import OWNED_OPTIONS
from spark_overlay.vllm_seam.versions import SEAMS

FOLDER = Path(os.environ["VLLM_RELEASES"]).resolve()
FROM_PARSER = ("host", "port", "headless", "model", "config")
"""Options that another module than the engine's arguments brings."""


def source(version: str, path: str) -> str:
    return (FOLDER / version / "vllm" / path).read_text(encoding="utf-8")


def body(text: str, name: str) -> str:
    """A function's own lines, without its docstring."""
    found = re.search(rf"\n( *)def {name}\(.*?(?=\n\1(?:def |@|class )|\Z)", text, re.DOTALL)
    return re.sub(r'""".*?"""', "", found.group(), flags=re.DOTALL) if found else ""


def test_every_supported_release_is_known() -> None:
    assert set(DROPS) == set(SEAMS)


@pytest.mark.parametrize("version", SEAMS)
def test_a_release_drops_the_block_as_the_configs_say(version: str) -> None:
    text = source(version, "config/speculative.py")
    has_switch = f"{DROP}: bool" in text
    spares_dspark = "use_dspark" in body(text, "needs_eagle_block_drop")
    if has_switch:
        drop = body(text, "use_eagle_block_drop")
        assert f"not self.{DROP}" in drop
        assert ("needs_eagle_block_drop" in drop) is spares_dspark
    assert '"dspark"' in body(text, "use_eagle"), "what drops a block for eagle does so for DSpark"
    said = "no switch" if not has_switch else "no drop" if spares_dspark else "switch"
    assert DROPS[version] == said


@pytest.mark.parametrize("version", SEAMS)
def test_a_release_has_the_options_that_are_rendered(version: str) -> None:
    text = source(version, "engine/arg_utils.py")
    # `--spec-…` are short forms of later releases, which are refused and never rendered.
    names = [name for name in OWNED_OPTIONS if name not in FROM_PARSER and not name.startswith("spec-")]
    assert [name for name in names if f'"--{name}"' not in text] == []


@pytest.mark.parametrize("version", SEAMS)
def test_hosts_without_rank_0_run_a_multiproc_executor_without_an_api(version: str) -> None:
    headless = body(source(version, "entrypoints/cli/serve.py"), "run_headless")
    assert "parallel_config.node_rank_within_dp > 0" in headless
    assert "MultiprocExecutor(vllm_config, monitor_workers=False)" in headless
    parallel = source(version, "distributed/parallel_state.py")
    assert "self.local_rank = local_rank" in parallel, "which tells a host's first rank"
