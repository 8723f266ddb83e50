"""Files that are named to a command: whatever they are, it says one sentence at once and leaves nothing half done."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from spark_overlay.cli import main
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.settings import PREFIX
from spark_overlay.vllm_seam.versions import SEAMS

VERSION = max(SEAMS)
LAUNCH = ("launch", "--print", "--config")
READING = {
    "site": (*LAUNCH, "C-capacity", "--site", "{}"),
    "config": (*LAUNCH, "{}"),
    "identity file": ("doctor", "--offline", "--identity-file", "{}"),
    "manifest": ("stage", "--to", "/nowhere/at/all", "--manifest", "{}"),
    "base": ("overlay", "build", "--version", VERSION, "--output", "none", "--base", "{}"),
    "mounted file": ("overlay", "check", "--file", "{}"),
    "prompts": (
        "calibrate",
        "--url",
        "http://127.0.0.1:1",
        "--control",
        "c",
        "--stats",
        "s",
        "--prompts",
        "{}",
    ),
}


def invoked(*words: str) -> Result:
    environ: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith(PREFIX))
    return CliRunner().invoke(main, words, env=environ)


def refused(*words: str) -> str:
    """The sentence of status 2."""
    result = invoked(*words)
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    lines = [line for line in result.output.splitlines() if line and not line.startswith(("Usage:", "Try "))]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("words", READING.values(), ids=READING)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_refused_and_never_waited_for(
    tmp_path: Path, words: tuple[str, ...], kind: str
) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    path = str(pipe) if kind == "pipe" else "/dev/zero"
    assert "not a regular file" in refused(*(word.format(path) for word in words))


def test_a_site_whose_identity_file_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "identity.json")
    site = tmp_path / "site.toml"
    site.write_text(
        f'target = "/t"\ndrafter = "/d"\nworker = "shm://w"\nidentity_file = "{tmp_path}/identity.json"\n'
    )
    said = refused(*LAUNCH, "C-capacity", "--site", str(site))
    assert (
        said
        == f"spark-overlay: {site}: identity_file: {tmp_path}/identity.json cannot be read: not a regular file"
    )


def test_a_wheel_that_is_a_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_overlay.delivery import overlay_file

    with pytest.raises(DeliveryError, match="--wheel: /dev/zero cannot be read: not a regular file"):
        overlay_file._wheel(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "is not TOML"),
        ('[[item]]\nplace = "a"\nsource = "a\\u0000b"', "a NUL byte stands in its name"),
        (f'[[item]]\nplace = "a"\nsource = "{"x" * 5000}"', "cannot be read: File name too long"),
        ("# " + "x" * (1 << 20), "is larger than"),
    ],
    ids=["deep", "NUL byte", "long name", "large"],
)
def test_a_stage_manifest_that_no_stage_can_be_made_of_is_one_sentence(
    tmp_path: Path, text: str, clause: str
) -> None:
    manifest = tmp_path / "stage.toml"
    manifest.write_text(text)
    assert clause in refused("stage", "--to", str(tmp_path / "host"), "--manifest", str(manifest))
    assert sorted(os.listdir(tmp_path)) == ["stage.toml"]


@pytest.mark.parametrize("folder", ["somebody's", "/", "/proc"])
def test_a_folder_of_others_is_no_place_for_an_overlay_and_is_not_read(tmp_path: Path, folder: str) -> None:
    from spark_overlay.delivery.overlay_file import _write_tree

    mine = tmp_path / "somebody's"
    (mine / "vllm").mkdir(parents=True)
    os.mkfifo(mine / "vllm" / "a.py")
    output = mine if folder == "somebody's" else Path(folder)
    with pytest.raises(DeliveryError, match="holds other files"):
        _write_tree({"vllm/b.py": b"x", "overlay.json": b"{}"}, output)


def test_a_tree_with_a_pipe_or_a_link_in_a_file_s_place_is_not_the_same_tree(tmp_path: Path) -> None:
    from spark_overlay.delivery.overlay_file import _write_tree

    files = {"vllm/a.py": b"x", "overlay.json": b"{}"}
    out = tmp_path / "out"
    assert _write_tree(files, out) is False
    assert _write_tree(files, out) is True
    (out / "more").symlink_to("vllm")
    with pytest.raises(DeliveryError, match="holds other files"):
        _write_tree(files, out)
    (out / "more").unlink()
    (out / "overlay.json").unlink()
    os.mkfifo(out / "overlay.json")
    with pytest.raises(DeliveryError, match="cannot be written: not a regular file"):
        _write_tree(files, out)


def test_an_archive_s_name_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    said = refused("support-bundle", "--offline", "--output", str(tmp_path / ("x" * 300)))
    assert said.endswith("cannot be written: File name too long")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "what", [name for name in READING if name != "prompts"]
)  # of those click itself tells
def test_a_name_of_two_lines_is_told_in_one(tmp_path: Path, what: str) -> None:
    path = str(tmp_path / "a\nb\x1b[2J.toml")
    assert "a\ufffdb\ufffd[2J.toml" in refused(*(word.format(path) for word in READING[what]))
