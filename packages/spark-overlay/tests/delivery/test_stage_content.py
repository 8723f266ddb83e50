"""What a stage holds: named by its digests, packed as it was digested, and nothing that a host could take otherwise."""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.delivery import content as module
from spark_overlay.delivery.content import Content, Item, collect, parse_item, read_manifest
from spark_overlay.delivery.errors import DeliveryError

Write = Callable[..., Path]


def packed(content: Content) -> tarfile.TarFile:
    archive = io.BytesIO()
    content.pack(archive)
    archive.seek(0)
    return tarfile.open(fileobj=archive)


def test_a_stage_is_named_by_the_sha256_of_its_sums(source: Write) -> None:
    folder = source(b__run="#!/bin/sh\n")
    (folder / "b/run").chmod(0o755)
    content = collect([Item("x", folder), Item("one", folder / "a.txt")])
    a, run = hashlib.sha256(b"a\n").hexdigest(), hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert content.sums.decode() == f"{a}  one\n{a}  x/a.txt\n{run}  x/b/run\n"
    assert content.name == hashlib.sha256(content.sums).hexdigest()
    assert content.size == 2 + 2 + 10


def test_the_archive_has_the_sums_first_and_nobodys_names_in_it(source: Write) -> None:
    folder = source(b__run="#!/bin/sh\n")
    (folder / "b/run").chmod(0o700)
    with packed(collect([Item("x", folder)])) as archive:
        entries = archive.getmembers()
        assert [one.name for one in entries] == ["stage.sha256", "x/a.txt", "x/b/run"]
        assert [one.mode for one in entries] == [0o644, 0o644, 0o755]
        assert {(one.uid, one.gid, one.uname, one.gname) for one in entries} == {(0, 0, "", "")}
        assert entries[1].mtime == 1_700_000_000, "Python tells compiled files by their source's time"


@pytest.mark.parametrize(
    "place",
    ["", "/a", "a/", "a//b", "..", "a/../b", ".", "-a", "a b", "a\nb", "a\\b", "a/-b", "é", "$x", "a*"],
)
def test_a_place_that_a_shell_or_sha256sum_could_take_otherwise_is_refused(source: Write, place: str) -> None:
    with pytest.raises(DeliveryError, match="a place in the stage is needed"):
        collect([Item(place, source() / "a.txt")])


@given(st.text(max_size=12))
def test_any_place_is_one_below_the_stage_or_is_refused(place: str) -> None:
    try:
        content = collect([Item(place, Path(__file__))])
    except DeliveryError:
        return
    assert content.files[0].place == os.path.normpath(place)
    assert not place.startswith(("/", "..", "-"))


def test_names_in_a_folder_are_held_to_the_same_rule(source: Write) -> None:
    folder = source(**{"a b": ""})
    with pytest.raises(DeliveryError, match="x/a b"):
        collect([Item("x", folder)])


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ([("a", "a.txt"), ("a", "b.txt")], "a: stands for two files"),
        ([("stage.sha256", "a.txt")], "stage.sha256: stands for two files"),
        ([("a", "a.txt"), ("a/b", "b.txt")], "a/b: lies below a file of the stage"),
        ([("a", "none")], "none cannot be read: No such file"),
        ([("a", "empty")], "empty is a folder without a file"),
        ([("a", "pipe")], "pipe is no plain file"),
        ([("a", "linked")], "link is a link to a folder"),
        ([("a", "dangling")], "dangling cannot be read: "),
    ],
)
def test_what_cannot_be_staged_is_named(source: Write, items: list[tuple[str, str]], sentence: str) -> None:
    folder = source(**{"b.txt": "b", "linked__c.txt": ""})
    (folder / "empty").mkdir()
    (folder / "linked/link").symlink_to(folder / "empty")
    (folder / "dangling").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe")
    with pytest.raises(DeliveryError, match=sentence):
        collect([Item(place, folder / name) for place, name in items])


def test_too_many_files_are_refused(source: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES_MAX", 1)
    with pytest.raises(DeliveryError, match="a stage holds at most 1 files"):
        collect([Item("x", source(**{"b.txt": ""}))])


def test_a_pinned_source_must_be_that_file(source: Write) -> None:
    folder = source()
    digest = hashlib.sha256(b"a\n").hexdigest()
    assert collect([Item("a", folder / "a.txt", digest)]).files[0].sha256 == digest
    with pytest.raises(DeliveryError, match=rf"its sha256 is {digest}, not {'0' * 64}"):
        collect([Item("a", folder / "a.txt", "0" * 64)])
    with pytest.raises(DeliveryError, match="a sha256 is of a file"):
        collect([Item("a", folder, digest)])


def test_a_source_that_shrank_or_went_is_not_packed(source: Write) -> None:
    folder = source(**{"a.txt": "long\n"})
    content = collect([Item("a", folder / "a.txt")])
    (folder / "a.txt").write_text("")
    with pytest.raises(DeliveryError, match="the stage cannot be packed: "):
        packed(content)
    (folder / "a.txt").unlink()
    with pytest.raises(DeliveryError, match="the stage cannot be packed: "):
        packed(content)


def test_a_manifest_says_items_destinations_and_how_many_stay(tmp_path: Path) -> None:
    path = tmp_path / "stage.toml"
    path.write_text(
        'to = ["spark-1:/opt/offload", "/srv"]\nkeep = 4\n'
        f'[[item]]\nplace = "wheels/a.whl"\nsource = "dist/a.whl"\nsha256 = "{"ab" * 32}"\n'
        '[[item]]\nplace = "overlay"\nsource = "/abs/tree"\n'
    )
    manifest = read_manifest(path)
    assert (manifest.to, manifest.keep) == (["spark-1:/opt/offload", "/srv"], 4)
    assert manifest.items == [
        Item("wheels/a.whl", tmp_path / "dist/a.whl", "ab" * 32),
        Item("overlay", Path("/abs/tree")),
    ]


ITEM = '[[item]]\nplace = "a"\nsource = "b"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("to = [", "is not TOML: "),
        ("\xff", "is not TOML: "),
        ("", "item: at least one"),
        ("item = 3", "item: at least one"),
        ("item = [3]", "item 1: a table is needed"),
        (f"hosts = []\n{ITEM}", "hosts: no such field; there are item, keep, to"),
        (f"to = 'a:b'\n{ITEM}", "to: a list of texts is needed"),
        (f"to = [1]\n{ITEM}", "to: a list of texts is needed"),
        (f"keep = 0\n{ITEM}", "keep: a number above 0 is needed, not 0"),
        (f"keep = true\n{ITEM}", "keep: a number above 0 is needed, not True"),
        ('[[item]]\nplace = "a"\n', "item 1: source: a text is needed"),
        ('[[item]]\nplace = ""\nsource = "b"\n', "item 1: place: a text is needed"),
        (f'{ITEM}{ITEM}mode = "x"\n', "item 2: mode: no such field; there are place, sha256, source"),
        (f'{ITEM}sha256 = "AB"\n', "item 1: sha256: 64 lower-case hex digits are needed, not 'AB'"),
        (f"{ITEM}sha256 = 3\n", "item 1: sha256: 64 lower-case hex digits are needed, not 3"),
    ],
)
def test_a_manifest_that_is_none_is_refused_by_file_and_field(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "stage.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DeliveryError) as refused:
        read_manifest(path)
    assert str(path) in str(refused.value)
    assert sentence in str(refused.value)


def test_a_manifest_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"stage\.toml cannot be read: No such file"):
        read_manifest(tmp_path / "stage.toml")
    (tmp_path / "stage.toml").write_bytes(b"#" * (module.MANIFEST_BYTES_MAX + 1))
    with pytest.raises(DeliveryError, match="is larger than 1048576 bytes, which no stage manifest is"):
        read_manifest(tmp_path / "stage.toml")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_refused(data: bytes) -> None:
    path = Path(f"/dev/shm/stage-{os.getpid()}.toml")
    path.write_bytes(data)
    try:
        read_manifest(path)
    except DeliveryError:
        pass
    finally:
        path.unlink()


def test_words_of_the_command_line_are_place_and_source() -> None:
    assert parse_item("wheels/a=dist/a=b") == Item("wheels/a", Path("dist/a=b"))
    for text in ("a", "=b", "a=", ""):
        with pytest.raises(DeliveryError, match="PLACE=SOURCE is needed"):
            parse_item(text)
