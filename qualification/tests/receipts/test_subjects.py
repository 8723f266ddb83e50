"""Subjects: digests that anyone can compute again with coreutils, and refusals that name the file."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from qualification.subjects import (
    Sources,
    SubjectsError,
    collect,
    engine_digest,
    folder_digest,
    read_subjects,
    subject,
    text,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""SHA-256 of "abc": FIPS 180-2, appendix B.1."""
RECIPE = r"find -L . -type f -printf '%P\n'"


@pytest.fixture
def bits(tmp_path: Path) -> Path:
    """A wheel, a configuration, and a checkpoint of three files, one of them a link."""
    (tmp_path / "ofl.whl").write_bytes(b"abc")
    (tmp_path / "serve.toml").write_bytes(b"port = 1\n")
    checkpoint = tmp_path / "drafter"
    (checkpoint / "deep").mkdir(parents=True)
    (checkpoint / "config.json").write_bytes(b"{}")
    (checkpoint / "deep/z.safetensors").write_bytes(b"z" * 70_000)
    (tmp_path / "blob").write_bytes(b"blob")
    (checkpoint / "a link").symlink_to("../blob")
    return tmp_path


def test_every_kind_is_collected_under_its_name(bits: Path) -> None:
    for number, name in enumerate(("libofl.so", "speculator.py", "table.json")):
        (bits / name).write_bytes(bytes([number]))
    made = collect(
        Sources(
            files=(
                ("wheel", bits / "ofl.whl"),
                ("native-library", bits / "libofl.so"),
                ("overlay-file", bits / "speculator.py"),
                ("table-manifest", bits / "table.json"),
                ("launch-config", bits / "serve.toml"),
            ),
            checkpoints=(bits / "drafter",),
            engine="vllm 0.33.0",
        )
    )
    assert [one.name for one in made.subjects] == [
        "checkpoint:drafter",
        "engine:vllm 0.33.0",
        "launch-config:serve.toml",
        "native-library:libofl.so",
        "overlay-file:speculator.py",
        "table-manifest:table.json",
        "wheel:ofl.whl",
    ]
    assert made.subjects[-1].digest.sha256 == ABC


def test_a_subjects_file_is_read_as_it_was_written(bits: Path) -> None:
    made = collect(Sources(files=(("wheel", bits / "ofl.whl"),)))
    (bits / "subjects.json").write_text(text(made))
    assert read_subjects(bits / "subjects.json") == made


def test_a_folder_has_the_digest_that_coreutils_say(bits: Path) -> None:
    """Names that begin with a dot or a dash count like any other."""
    (bits / "drafter" / ".gitattributes").write_bytes(b"hidden")
    (bits / "drafter" / "-x").write_bytes(b"dashed")
    said = subprocess.run(
        ["bash", "-c", f"{RECIPE} | LC_ALL=C sort | xargs -d '\\n' sha256sum -- | sha256sum"],
        cwd=bits / "drafter",
        capture_output=True,
        text=True,
        check=True,
    )
    assert folder_digest(bits / "drafter") == said.stdout.split()[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "config.json").write_bytes(b"{ }"),
        lambda folder: (folder / "config.json").rename(folder / "other.json"),
        lambda folder: (folder / "deep/z.safetensors").rename(folder / "z.safetensors"),
        lambda folder: (folder / "more").write_bytes(b""),
        lambda folder: (folder / "config.json").unlink(),
    ],
)
def test_a_folder_changes_its_digest_with_any_file(bits: Path, change: Any) -> None:
    before = folder_digest(bits / "drafter")
    change(bits / "drafter")
    assert folder_digest(bits / "drafter") != before


def test_a_folder_keeps_its_digest_wherever_it_lies(bits: Path) -> None:
    before = folder_digest(bits / "drafter")
    (bits / "drafter").rename(bits / "moved")
    assert folder_digest(bits / "moved") == before


def test_an_engine_is_its_name_version_and_patched_files(bits: Path) -> None:
    plain = engine_digest(Sources(engine="vllm 0.33.0"))
    assert plain == hashlib.sha256(b"vllm 0.33.0\n").hexdigest()
    patched = Sources(engine="vllm 0.33.0", engine_root=bits, engine_files=("ofl.whl",))
    assert engine_digest(patched) == hashlib.sha256(f"vllm 0.33.0\n{ABC}  ofl.whl\n".encode()).hexdigest()
    assert engine_digest(Sources(engine="vllm 0.32.0")) != plain


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (lambda bits: Sources(), "no subject was given"),
        (lambda bits: Sources(files=(("wheel", bits / "none.whl"),)), "none.whl is no file"),
        (lambda bits: Sources(files=(("wheel", bits / "drafter"),)), "drafter is no file"),
        (lambda bits: Sources(checkpoints=(bits / "ofl.whl",)), "ofl.whl is no folder"),
        (lambda bits: Sources(checkpoints=(bits / "empty",)), "empty holds no file"),
        (lambda bits: Sources(engine_files=("ofl.whl",)), "no engine version"),
        (
            lambda bits: Sources(engine="vllm", engine_root=bits, engine_files=("a", "a")),
            "file a was given twice",
        ),
        (lambda bits: Sources(engine="vllm", engine_root=bits, engine_files=("none",)), "none is no file"),
        (lambda bits: Sources(engine="a\nb"), r"engine 'a\\nb' cannot be a subject: field name"),
        (
            lambda bits: Sources(files=(("wheel", bits / "ofl.whl"),) * 2),
            "two subjects have the name wheel:ofl.whl",
        ),
        (
            lambda bits: Sources(files=(("wheel", bits / "ofl.whl"), ("overlay-file", bits / "ofl.whl"))),
            f"two subjects have the digest {ABC}",
        ),
    ],
)
def test_what_cannot_be_collected_is_refused_by_name(bits: Path, sources: Any, said: str) -> None:
    (bits / "empty").mkdir()
    with pytest.raises(SubjectsError, match=said):
        collect(sources(bits))


@pytest.mark.parametrize("name", [b"new\nline", b"back\\slash", b"latin-\xfc"])
def test_a_name_that_is_no_line_is_refused(bits: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(bits / "drafter"), name), "wb"):
        pass
    with pytest.raises(SubjectsError, match="the name"):
        folder_digest(bits / "drafter")


def test_a_linked_folder_in_a_checkpoint_is_refused_and_not_left_out(bits: Path) -> None:
    (bits / "drafter/linked").symlink_to(bits)
    with pytest.raises(SubjectsError, match="linked is a link to a folder"):
        folder_digest(bits / "drafter")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no JSON"),
        (b'{"format":"urn:spark-offload:qualification:subjects:v1","subjects":[]}', "field subjects"),
        (b'{"format":"urn:spark-offload:qualification:subjects:v2","subjects":[]}', "field format"),
        (b'{"format":1,"format":2}', "stands twice"),
        (b'{"extra":1}', "field extra"),
    ],
)
def test_a_subjects_file_that_is_none_is_refused_by_field(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "subjects.json").write_bytes(data)
    with pytest.raises(SubjectsError, match=said):
        read_subjects(tmp_path / "subjects.json")


def test_a_subjects_file_with_a_subject_twice_is_refused(tmp_path: Path) -> None:
    made = collect(Sources(engine="vllm 0.33.0"))
    doubled = made.model_copy(update={"subjects": made.subjects * 2})
    (tmp_path / "subjects.json").write_text(text(doubled))
    with pytest.raises(SubjectsError, match="two subjects have the name"):
        read_subjects(tmp_path / "subjects.json")


def test_a_subject_says_its_kind() -> None:
    assert subject("native-library", "libofl.so: a copy", ABC).kind == "native-library"
