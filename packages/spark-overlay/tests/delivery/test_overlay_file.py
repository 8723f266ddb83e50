"""Building the file overlay, and judging a file: pinned bytes alone, whole trees, one verdict and one status each."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.cli import main as command
from spark_overlay.delivery import overlay_command
from spark_overlay.delivery.branch import BRANCH, BranchError, lay_over, stock_of
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.overlay_file import (
    FILE_BYTES_MAX,
    State,
    build,
    check_file,
    check_image,
    place_of,
)
from spark_overlay.vllm_seam.errors import SeamError
from spark_overlay.vllm_seam.versions import SEAMS, check_base_file

BASES = {
    "0.30.0": b"import torch\n\n\ndef init_speculator(config, device):\n    return 30\n",
    "0.32.0": b"import torch\n\n\ndef init_speculator(config, device, states):\n    return 32\n",
}
"""Stand-ins for the stock files."""
STANDING_IN = {
    version: replace(SEAMS[version], base_sha256=hashlib.sha256(data).hexdigest())
    for version, data in BASES.items()
}
PLACE = "vllm/v1/worker/gpu/spec_decode/__init__.py"
PAGE = Path(__file__).parents[4] / "docs/operations/delivery.md"
STOCK = BASES["0.32.0"]


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command knows the stand-ins."""
    for name in ("build", "check_file", "check_image"):
        original = getattr(overlay_command, name)
        monkeypatch.setattr(
            overlay_command, name, lambda *a, original=original, **k: original(*a, **k, seams=STANDING_IN)
        )


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_the_overlay_is_the_stock_file_and_one_branch_behind_it() -> None:
    laid = lay_over(STOCK)
    assert laid == STOCK + BRANCH
    assert BRANCH.count(b"if ") == 1
    assert stock_of(laid) == STOCK
    assert stock_of(STOCK) is None


@pytest.mark.parametrize(
    ("base", "why"),
    [
        (b"def other(): ...\n", "it defines init_speculator 0 times, not once"),
        (STOCK + STOCK, "it defines init_speculator 2 times, not once"),
        (STOCK + b"init_speculator = None\n", "init_speculator is not the last that it defines"),
        (b"class A:\n    def init_speculator(self): ...\n", "it defines init_speculator 0 times, not once"),
        (lay_over(STOCK), "it reads VLLM_DSPARK_REMOTE itself already"),
        (b"def init_speculator(:\n", "it is not Python: "),
        (b"\0", "it is not Python: "),
        (STOCK.rstrip(b"\n"), "its last line has no end"),
    ],
)
def test_a_file_without_exactly_one_place_for_the_branch_is_refused(base: bytes, why: str) -> None:
    with pytest.raises(BranchError) as refused:
        lay_over(base)
    assert str(refused.value).startswith(why)


@given(st.binary(max_size=64))
def test_only_the_exact_branch_is_taken_off(tail: bytes) -> None:
    under = stock_of(STOCK + tail + BRANCH)
    assert under == (None if b"VLLM_DSPARK_REMOTE" in tail else STOCK + tail)
    assert stock_of(STOCK + BRANCH + tail) == (STOCK if tail == b"" else None)


def test_build_writes_the_tree_below_site_packages_and_a_manifest_of_its_digests(tmp_path: Path) -> None:
    base = written(tmp_path / "base.py", STOCK)
    wheel = written(tmp_path / "spark_overlay-9-py3-none-any.whl", b"wheel")
    built = build(base, "0.32.0+cu130", tmp_path / "new/tree", wheel=wheel, seams=STANDING_IN)
    files = {
        path.relative_to(tmp_path / "new/tree").as_posix()
        for path in (tmp_path / "new/tree").rglob("*")
        if path.is_file()
    }
    assert files == {PLACE, "overlay.json"}
    assert built.overlay.read_bytes() == lay_over(STOCK)
    manifest = json.loads(built.manifest.read_text())
    assert manifest["vllm_version"] == "0.32.0"
    assert manifest["file"] == PLACE == place_of(SEAMS["0.32.0"])
    assert manifest["base_sha256"] == hashlib.sha256(STOCK).hexdigest()
    assert manifest["overlay_sha256"] == hashlib.sha256(lay_over(STOCK)).hexdigest()
    assert manifest["spark_overlay"]["wheel_sha256"] == hashlib.sha256(b"wheel").hexdigest()
    assert manifest["spark_overlay"]["wheel"] == wheel.name
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tree"], "nothing else is left behind"


def test_building_again_changes_nothing_and_other_files_are_never_overwritten(tmp_path: Path) -> None:
    base = written(tmp_path / "base.py", STOCK)
    out = tmp_path / "tree"
    out.mkdir()
    assert not build(base, "0.32.0", out, seams=STANDING_IN).unchanged
    before = (out / PLACE).stat().st_ino
    assert build(base, "0.32.0", out, seams=STANDING_IN).unchanged
    assert (out / PLACE).stat().st_ino == before
    written(out / "mine", b"")
    with pytest.raises(DeliveryError, match=r"tree holds other files: name a new folder, or take it away"):
        build(base, "0.32.0", out, seams=STANDING_IN)
    assert (out / "mine").exists()


@pytest.mark.parametrize(
    ("data", "version", "clauses"),
    [
        (
            STOCK + b"# patched\n",
            "0.32.0",
            ("is not the file of vLLM 0.32.0", "take it from an unchanged image"),
        ),
        (BASES["0.30.0"], "0.32.0", ("is not the file of vLLM 0.32.0", "or name the version")),
        (lay_over(STOCK), "0.32.0", ("is not the file of vLLM 0.32.0", "where nothing is mounted over it")),
    ],
)
def test_build_refuses_bytes_that_are_not_pinned_with_both_digests_and_the_repair(
    tmp_path: Path, data: bytes, version: str, clauses: tuple[str, ...]
) -> None:
    base = written(tmp_path / "base.py", data)
    with pytest.raises(DeliveryError) as refused:
        build(base, version, tmp_path / "tree", seams=STANDING_IN)
    digests = (hashlib.sha256(data).hexdigest(), STANDING_IN[version].base_sha256)
    assert all(text in str(refused.value) for text in (str(base), *digests, *clauses))
    assert not (tmp_path / "tree").exists()


def test_a_pin_of_a_file_without_a_place_for_the_branch_builds_nothing(tmp_path: Path) -> None:
    base = written(tmp_path / "base.py", b"x = 1\n")
    seam = replace(SEAMS["0.32.0"], base_sha256=hashlib.sha256(b"x = 1\n").hexdigest())
    with pytest.raises(DeliveryError, match=r"is pinned for vLLM 0\.32\.0, but it defines init_speculator 0"):
        build(base, "0.32.0", tmp_path / "tree", seams={"0.32.0": seam})


def test_what_cannot_be_read_or_written_is_one_sentence(tmp_path: Path) -> None:
    base = written(tmp_path / "base.py", STOCK)
    file = written(tmp_path / "file", b"")
    large = written(tmp_path / "large.py", b" " * (FILE_BYTES_MAX + 1))
    refusals: list[tuple[Callable[[], object], str]] = [
        (
            lambda: build(tmp_path / "none", "0.32.0", tmp_path / "a", seams=STANDING_IN),
            "none cannot be read: No",
        ),
        (
            lambda: build(large, "0.32.0", tmp_path / "a", seams=STANDING_IN),
            "large.py is larger than 1048576",
        ),
        (
            lambda: build(base, "0.99", tmp_path / "a", seams=STANDING_IN),
            "vLLM 0.99 is not supported; supported: ",
        ),
        (lambda: build(base, "0.32.0", file / "a", seams=STANDING_IN), "--output: .*cannot be written: "),
        (lambda: build(base, "0.32.0", file, seams=STANDING_IN), "--output: .*file cannot be written: "),
        (
            lambda: build(base, "0.32.0", tmp_path / "a", wheel=tmp_path / "none", seams=STANDING_IN),
            "--wheel: .*none cannot be read: ",
        ),
    ]
    for call, sentence in refusals:
        with pytest.raises(DeliveryError, match=sentence):
            call()
    assert {path.name for path in tmp_path.iterdir()} == {"base.py", "file", "large.py"}


@pytest.mark.parametrize(
    ("data", "version", "state", "clause"),
    [
        (STOCK, "", State.STOCK, "is the stock file of vLLM 0.32.0: no overlay"),
        (STOCK, "0.32.0+cpu", State.STOCK, "is the stock file of vLLM 0.32.0: no overlay"),
        (lay_over(STOCK), "", State.OVERLAY, "is the overlay of spark-overlay "),
        (lay_over(STOCK), "0.32.0", State.OVERLAY, " for vLLM 0.32.0"),
        (lay_over(BASES["0.30.0"]), "0.32.0", State.OTHER, "is the overlay of vLLM 0.30.0, not of 0.32.0"),
        (BASES["0.30.0"], "0.32.0", State.OTHER, "is the stock file of vLLM 0.30.0, not of 0.32.0"),
        (STOCK + b"\n", "", State.OTHER, "is neither stock nor ours: its sha256 is "),
        (STOCK + b"\n" + BRANCH, "", State.OTHER, "reads VLLM_DSPARK_REMOTE itself, and is not what"),
        (lay_over(STOCK).replace(b"register()", b"pass"), "", State.OTHER, "build it again with"),
    ],
)
def test_a_file_is_stock_ours_or_something_else(
    tmp_path: Path, data: bytes, version: str, state: State, clause: str
) -> None:
    file = written(tmp_path / "f.py", data)
    verdict = check_file(file, version, seams=STANDING_IN)
    assert (verdict.state, verdict.sha256) == (state, hashlib.sha256(data).hexdigest())
    assert clause in verdict.sentence
    done = CliRunner().invoke(
        command,
        ["overlay", "check", "--file", str(file), "--json", *(["--version", version] if version else [])],
    )
    assert done.exit_code == {State.OVERLAY: 0, State.STOCK: 3, State.OTHER: 4}[state]
    assert json.loads(done.stdout) == {
        "state": state.value, "file": str(file), "version": verdict.version, "sha256": verdict.sha256,
        "sentence": verdict.sentence,
    }  # fmt: skip


@pytest.mark.parametrize(
    "where", ["", "usr/local/lib/python3.12/dist-packages", "opt/venv/lib/python3.11/site-packages"]
)
def test_in_an_image_file_and_version_are_found(tmp_path: Path, where: str) -> None:
    packages = tmp_path / where
    written(packages / PLACE, lay_over(STOCK))
    (packages / "vllm-0.32.0+cu130.dist-info").mkdir()
    assert check_image(tmp_path, seams=STANDING_IN).state == State.OVERLAY
    assert check_image(tmp_path, "0.30.0", seams=STANDING_IN).state == State.OTHER


def test_an_image_that_cannot_be_judged_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="holds vLLM 0 times, where one is needed: no lib/python3"):
        check_image(tmp_path, seams=STANDING_IN)
    with pytest.raises(DeliveryError, match="nowhere is not a folder"):
        check_image(tmp_path / "nowhere", seams=STANDING_IN)
    for place in ("lib/python3.11/site-packages", "usr/lib/python3.12/dist-packages"):
        written(tmp_path / place / PLACE, STOCK)
    with pytest.raises(DeliveryError, match=r"holds vLLM 2 times.*python3\.11.*python3\.12"):
        check_image(tmp_path, seams=STANDING_IN)
    one = tmp_path / "lib"
    with pytest.raises(DeliveryError, match=r"holds 0 distributions of vLLM.*--version"):
        check_image(one / "python3.11/site-packages", seams=STANDING_IN)


def test_the_command_builds_and_says_each_refusal_with_status_2(tmp_path: Path) -> None:
    base = written(tmp_path / "base.py", STOCK)
    words = ["overlay", "build", "--base", str(base), "--output", str(tmp_path / "tree")]
    run = CliRunner().invoke
    done = run(command, [*words, "--version", "0.32.0"])
    assert done.exit_code == 0
    assert hashlib.sha256(lay_over(STOCK)).hexdigest() in done.stdout
    again = run(command, [*words, "--version", "0.32.0", "--json"])
    assert json.loads(again.stdout)["unchanged"] is True
    for arguments, clause in (
        ([*words, "--version", "0.30.0"], "is not the file of vLLM 0.30.0"),
        (["overlay", "check"], "one of --image-root and --file is needed"),
        (
            ["overlay", "check", "--file", "a", "--image-root", "b"],
            "one of --image-root and --file is needed",
        ),
        (["overlay", "check", "--image-root", str(tmp_path)], "where one is needed"),
    ):
        done = run(command, arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("spark-overlay: ")
        assert done.stderr.count("\n") == 1
        assert clause in done.stderr


def test_the_plugin_takes_our_overlay_for_the_release_and_no_other_file(tmp_path: Path) -> None:
    file, seam = tmp_path / "__init__.py", STANDING_IN["0.32.0"]
    check_base_file(seam, "0.32.0", written(file, STOCK))
    check_base_file(seam, "0.32.0", written(file, lay_over(STOCK)))
    with pytest.raises(SeamError, match=r"is not the file of vLLM 0\.32\.0"):
        check_base_file(seam, "0.32.0", written(file, lay_over(BASES["0.30.0"])))
    with pytest.raises(SeamError, match="take away one of the two, or build the file again"):
        check_base_file(seam, "0.32.0", written(file, lay_over(STOCK) + b"\n"))


def test_the_page_for_operators_shows_the_branch_and_every_pin() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"```python\n{BRANCH.decode()}```" in page
    for version, seam in SEAMS.items():
        assert f"| {version} | `{seam.base_sha256}` |" in page
