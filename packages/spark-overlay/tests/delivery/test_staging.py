"""Staging: verified at the far end before it is in place, switched everywhere or nowhere, and back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_overlay.delivery.content import Content, Item, collect
from spark_overlay.delivery.errors import DeliveryError
from spark_overlay.delivery.staging import Result, State, Status, check, roll_back, stage
from spark_overlay.delivery.transport import Destination, RemoteShell, parse_destination, parse_rsh
from staging_rig import Fars

Write = Callable[..., Path]
HERE = RemoteShell(["no-such-remote-shell"], 60)
"""Folders of this host need no remote shell."""


@pytest.fixture
def hosts(fars: Fars) -> list[Destination]:
    """Two hosts, the second with its folder told from the home folder's view."""
    fars.add("one")
    fars.add("two")
    return [Destination("one", str(fars.folder / "one/opt stage")), Destination("two", "opt/deep/er")]


def content(source: Write, **files: str) -> Content:
    return collect([Item("x", source(**files))])


def at(fars: Fars, host: Destination) -> Path:
    """The far folder, as this host sees it."""
    return fars.folder / host.host / host.folder


def statuses(results: list[Result]) -> list[Status]:
    return [one.status for one in results]


def current(folder: Path) -> str:
    link = folder / "current"
    return os.readlink(link).removeprefix("stages/") if link.is_symlink() else ""


def left(folder: Path) -> set[str]:
    """Everything below a far end's folder that is not hidden history or a link."""
    return {path.name for path in (folder / "stages").iterdir()} if (folder / "stages").exists() else set()


def test_every_host_gets_the_files_and_the_link(
    fars: Fars, hosts: list[Destination], source: Write, tmp_path: Path
) -> None:
    folder = source(b__run="#!/bin/sh\n")
    (folder / "b/run").chmod(0o755)
    made = collect([Item("x", folder)])
    here = Destination("", str(tmp_path / "here"))
    results = stage(made, [*hosts, here], fars.shell(), 3)
    assert [(one.status, one.stage, one.sentence) for one in results] == [
        (Status.DONE, made.name, "copied, verified; current now")
    ] * 3
    for place in (*(at(fars, host) for host in hosts), tmp_path / "here"):
        assert current(place) == made.name
        assert (place / "current/x/a.txt").read_text() == "a\n"
        assert os.access(place / "current/x/b/run", os.X_OK)
        assert not os.access(place / "current/x/a.txt", os.X_OK)
        assert (place / "current/stage.sha256").read_bytes() == made.sums
        assert left(place) == {made.name}
        assert {path.name for path in place.iterdir()} == {"stages", "current", "history"}


def test_staging_the_same_again_copies_nothing(fars: Fars, hosts: list[Destination], source: Write) -> None:
    made = content(source)
    stage(made, hosts, fars.shell(), 3)
    fars.program("one", "tar", "exit 9")
    again = stage(made, hosts, fars.shell(), 3)
    assert {(one.status, one.sentence) for one in again} == {
        (Status.DONE, "there already, verified; it was current already")
    }


def test_the_newest_stages_stay_and_a_rollback_goes_back_through_them(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    made = [content(source, **{"a.txt": f"{number}\n"}) for number in range(4)]
    names = [one.name for one in made]
    for number in range(4):
        source(**{"a.txt": f"{number}\n"})
        assert statuses(stage(made[number], hosts, fars.shell(), 3)) == [Status.DONE] * 2
    place = at(fars, hosts[1])
    (place / "stages/mine").mkdir()
    assert left(place) == {*names[1:], "mine"}
    for wanted in (names[2], names[1]):
        back = roll_back(hosts, fars.shell())
        assert {(one.status, one.stage, one.sentence) for one in back} == {
            (Status.DONE, wanted, "verified; current now")
        }
        assert current(place) == wanted
        assert (place / "current/x/a.txt").read_text() == f"{names.index(wanted)}\n"
    assert statuses(roll_back(hosts, fars.shell())) == [Status.NO_STAGE] * 2
    assert current(place) == names[1]
    source(**{"a.txt": "0\n"})
    stage(made[0], hosts, fars.shell(), 2)
    assert left(place) == {names[1], names[0], "mine"}, (
        "what was rolled back from is gone; a stranger's folder stays"
    )
    assert roll_back(hosts, fars.shell())[0].stage == names[1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda at: (at / "x/a.txt").write_text("b\n"), "x/a.txt differs"),
        (lambda at: (at / "x/a.txt").unlink(), "x/a.txt is missing"),
        (lambda at: (at / "x/more").write_text(""), "x/more does not belong to it"),
        (lambda at: (at / ".hidden").write_text(""), ".hidden does not belong to it"),
        (lambda at: (at / "x/link").symlink_to("a.txt"), "x/link is a link"),
        (lambda at: (at / "stage.sha256").write_text(""), "stage.sha256 differs"),
        (lambda at: (at / "stage.sha256").unlink(), "stage.sha256 is missing"),
        (lambda at: [(at / f"m{n}").write_text("") for n in range(7)], "m4 does not belong to it, 2 more"),
    ],
)
def test_check_finds_what_was_changed_at_the_far_end_and_changes_nothing(
    fars: Fars, hosts: list[Destination], source: Write, change: Callable[[Path], object], sentence: str
) -> None:
    made = content(source)
    stage(made, hosts, fars.shell(), 3)
    assert statuses(check(hosts, fars.shell())) == [Status.DONE] * 2
    assert statuses(check(hosts, fars.shell(), made.name)) == [Status.DONE] * 2
    change(at(fars, hosts[0]) / "current")
    before = sorted(str(path) for path in fars.folder.rglob("*"))
    bad, good = check(hosts, fars.shell())
    assert (bad.status, good.status) == (Status.DIFFERS, Status.DONE)
    assert bad.sentence.startswith("it is not what was staged: ")
    assert bad.sentence.endswith(sentence)
    assert sorted(str(path) for path in fars.folder.rglob("*")) == before
    mended = stage(made, hosts, fars.shell(), 3)
    assert [one.sentence for one in mended] == [
        "copied, verified; it was current already",
        "there already, verified; it was current already",
    ]
    assert statuses(check(hosts, fars.shell())) == [Status.DONE] * 2


def test_check_says_what_is_not_there_or_another_stage(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    assert {(one.status, one.sentence) for one in check(hosts, fars.shell())} == {
        (Status.NO_STAGE, "nothing is staged there")
    }
    first = content(source)
    stage(first, hosts, fars.shell(), 3)
    second = content(source, **{"a.txt": "other\n"})
    assert {(one.status, one.sentence) for one in check(hosts, fars.shell(), second.name)} == {
        (Status.DIFFERS, f"another stage is current, not {second.name}")
    }
    stage(second, hosts[:1], fars.shell(), 3)
    assert {(one.status, one.sentence) for one in check(hosts, fars.shell())} == {
        (Status.DIFFERS, "the hosts have different stages")
    }


TARS = {
    "no room": (
        'printf half > "$4/half"; echo "tar: x: Cannot write: No space left on device" >&2; exit 2',
        Status.NOT_COPIED,
        "it could not be copied: tar: x: Cannot write: No space left on device",
    ),
    "a changed byte": (
        '"$REAL" "$@" && printf b > "$4/x/a.txt"',
        Status.DIFFERS,
        "what arrived is not what was sent, and was taken away: x/a.txt differs",
    ),
    "a file more": (
        '"$REAL" "$@" && : > "$4/x/more"',
        Status.DIFFERS,
        "what arrived is not what was sent, and was taken away: x/more does not belong to it",
    ),
    "an empty archive": (
        "exit 0",
        Status.DIFFERS,
        "what arrived is not what was sent, and was taken away: stage.sha256 is missing",
    ),
    "no room, and last words without a reason": (
        "echo 'tar: x: Cannot write: No space left on device' >&2; "
        "echo 'tar: Exiting with failure status due to previous errors' >&2; exit 2",
        Status.NOT_COPIED,
        "it could not be copied: tar: x: Cannot write: No space left on device",
    ),
    "killed": ("kill -TERM $PPID; exit 1", Status.NOT_COPIED, "it could not be copied: it said nothing"),
}


@pytest.mark.parametrize("what", TARS)
def test_a_copy_that_fails_leaves_nothing_and_no_host_is_switched(
    fars: Fars, hosts: list[Destination], source: Write, what: str
) -> None:
    first = content(source)
    stage(first, hosts, fars.shell(), 3)
    body, status, sentence = TARS[what]
    fars.program("one", "tar", body)
    second = content(source, **{"a.txt": "new\n"})
    bad, good = stage(second, hosts, fars.shell(), 3)
    assert (bad.status, bad.sentence) == (status, sentence)
    assert good.status is Status.HELD_BACK
    assert good.sentence == "copied, verified; not switched, as another host failed"
    assert left(at(fars, hosts[0])) == {first.name}
    assert [current(at(fars, host)) for host in hosts] == [first.name] * 2
    (fars.folder / "one/bin/tar").unlink()
    assert statuses(stage(second, hosts, fars.shell(), 3)) == [Status.DONE] * 2, "and it can be done again"


@pytest.mark.parametrize("count", [0, 1, 512, 1024, 1536, 2500])
def test_a_connection_that_breaks_in_the_middle_leaves_nothing(
    fars: Fars, hosts: list[Destination], source: Write, count: int
) -> None:
    fars.program("one", "tar", f'head -c {count} | "$REAL" "$@"')
    bad, _ = stage(content(source, **{"long.txt": "x" * 5000}), hosts, fars.shell(), 3)
    assert bad.status in (Status.NOT_COPIED, Status.DIFFERS)
    assert left(at(fars, hosts[0])) == set()
    assert current(at(fars, hosts[0])) == ""


def test_a_source_that_changes_while_it_is_staged_is_refused_at_the_far_end(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    made = content(source)
    source(**{"a.txt": "b\n"})
    assert [one.sentence for one in stage(made, hosts, fars.shell(), 3)] == [
        "what arrived is not what was sent, and was taken away: x/a.txt differs"
    ] * 2


def test_leftovers_of_an_interrupted_copy_go_with_the_next_one(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    stages = at(fars, hosts[0]) / "stages"
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (stages / f".incoming-{'0' * 64}-{pid}").mkdir(parents=True)
    made = content(source)
    stage(made, hosts, fars.shell(), 3)
    assert left(stages.parent) == {made.name, f".incoming-{'0' * 64}-{os.getpid()}"}, (
        "one that still runs is let be"
    )


def test_a_host_that_cannot_be_used_is_one_sentence_each(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    made = content(source)
    (fars.folder / "one/file").write_text("")
    below = Destination("one", "file/stage")
    gone = Destination("gone", "/opt")
    results = stage(made, [below, gone, hosts[1]], fars.shell(), 3)
    assert statuses(results) == [Status.NOT_COPIED, Status.UNREACHABLE, Status.HELD_BACK]
    assert results[0].sentence.startswith("the folder cannot be made or written: mkdir: ")
    assert results[1].sentence == "it cannot be reached: ssh: Could not resolve hostname gone"
    for shell, sentence in (
        (
            RemoteShell(["/no/such/program"], 60),
            "'/no/such/program' cannot be started: No such file or directory",
        ),
        (RemoteShell(["sh", "-c", "echo no >&2; exit 126"], 60), "its shell ended with status 126: no"),
        (RemoteShell(["sh", "-c", "kill -KILL $$"], 60), "the remote shell was ended by signal 9"),
    ):
        for results in (check(hosts, shell), roll_back(hosts, shell), stage(made, hosts, shell, 3)):
            assert {(one.status, one.sentence) for one in results} == {(Status.UNREACHABLE, sentence)}


def test_a_host_that_does_not_answer_is_given_up_and_its_connection_ended(
    fars: Fars, hosts: list[Destination], tmp_path: Path
) -> None:
    (fars.folder / "one/before").write_text(f"echo $$ > {tmp_path}/pid\nsleep 600\n")
    (only,) = check(hosts[:1], fars.shell(timeout_s=2.0))
    assert (only.status, only.sentence) == (Status.UNREACHABLE, "no answer within 2 s")
    if (tmp_path / "pid").exists():  # on a busy host it may have been ended before it said anything
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_folder_that_is_called_current_is_not_replaced(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    (at(fars, hosts[0]) / "current/precious").mkdir(parents=True)
    bad, good = stage(content(source), hosts, fars.shell(), 3)
    assert (bad.status, good.status) == (Status.NOT_SWITCHED, Status.DONE)
    assert bad.sentence.startswith("not switched: its shell ended with status 44: mv: ")
    assert (at(fars, hosts[0]) / "current/precious").is_dir()
    assert not list(at(fars, hosts[0]).glob(".current-*"))


def test_a_host_that_is_lost_before_the_switch_is_said(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    (fars.folder / "one/before").write_text("case $2 in (*readlink*) echo away >&2; exit 255;; esac\n")
    bad, good = stage(content(source), hosts, fars.shell(), 3)
    assert (bad.status, bad.sentence) == (Status.NOT_SWITCHED, "not switched: it cannot be reached: away")
    assert good.status is Status.DONE


def test_a_rollback_to_what_is_gone_damaged_or_unlike_changes_nothing(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    made = [content(source, **{"a.txt": text}) for text in ("1\n", "2\n")]
    for one, text in zip(made, ("1\n", "2\n"), strict=True):
        source(**{"a.txt": text})
        stage(one, hosts, fars.shell(), 3)
    old = at(fars, hosts[0]) / "stages" / made[0].name
    (old / "x/a.txt").write_text("damaged")
    bad, good = roll_back(hosts, fars.shell())
    assert (bad.status, good.status) == (Status.DIFFERS, Status.HELD_BACK)
    old.rename(old.with_name("away"))
    bad, good = roll_back(hosts, fars.shell())
    assert (bad.status, bad.sentence) == (Status.NO_STAGE, "this stage is not there any more")
    third = content(source, **{"a.txt": "3\n"})
    stage(third, hosts[1:], fars.shell(), 3)
    (old.with_name("away")).rename(old)
    (old / "x/a.txt").write_text("1\n")
    unlike = roll_back(hosts, fars.shell())
    assert {(one.status, one.sentence) for one in unlike} == {
        (Status.DIFFERS, "the hosts have different stages")
    }
    assert current(at(fars, hosts[0])) == made[1].name


def test_what_a_login_shell_says_of_its_own_is_not_taken_for_an_answer(
    fars: Fars, hosts: list[Destination], source: Write
) -> None:
    for host in ("one", "two"):
        (fars.folder / host / "before").write_text("echo Welcome; echo current events\n")
    made = content(source)
    assert statuses(stage(made, hosts, fars.shell(), 3)) == [Status.DONE] * 2
    assert statuses(check(hosts, fars.shell(), made.name)) == [Status.DONE] * 2


@given(st.lists(st.one_of(st.sampled_from("abcd"), st.none()), max_size=12))
def test_going_back_undoes_staging_as_an_undo_list_does(steps: list[str | None]) -> None:
    """A letter stages it, None rolls back.  The model: staging cuts what was undone, and moves what was there up."""
    state = State("", [])
    undo: list[str] = []
    for step in steps:
        if step is None:
            assert state.before == (undo[-2] if len(undo) > 1 else "")
            if state.before:
                undo.pop()
                state = State(state.before, state.history)
        elif step != state.current:
            undo = [*(one for one in undo if one != step), step]
            state = State(step, state.followed_by(step, 100))
        assert state.current == (undo[-1] if undo else "")


def test_a_stage_without_a_history_counts_as_the_one_before() -> None:
    assert State("a", []).followed_by("b", 3) == ["a", "b"]
    assert State("a", ["a", "b"]).followed_by("c", 1) == ["c"]
    assert State("", []).before == ""


@pytest.mark.parametrize(
    ("text", "host", "folder"),
    [
        ("spark-1:/opt/x", "spark-1", "/opt/x"),
        ("me@10.0.0.1:x:y", "me@10.0.0.1", "x:y"),
        ("[fe80::1%eth0]:/opt", "[fe80::1%eth0]", "/opt"),
        ("/srv/a:b", "", "/srv/a:b"),
        ("./a:b", "", "./a:b"),
        ("here", "", "here"),
    ],
)
def test_destinations_are_read_as_scp_reads_them(text: str, host: str, folder: str) -> None:
    made = parse_destination(text)
    assert (made.host, made.folder) == (host, folder)
    assert str(made) == text


@pytest.mark.parametrize(
    "text", ["", "host:", "-oProxyCommand=x:/opt", "a b:/opt", ":/opt", "h:/a\nb", "h:~/a", "-p:/opt"]
)
def test_a_destination_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(DeliveryError, match=r"^--to: "):
        parse_destination(text)


def test_a_remote_shell_command_gets_the_host_where_it_says_and_one_command() -> None:
    made = Destination("[::1]", "-d")
    for rsh, words in (
        ("ssh -p 22", ["ssh", "-p", "22", "::1"]),
        ("netns {host} sh -c", ["netns", "::1", "sh", "-c"]),
    ):
        found = RemoteShell(parse_rsh(rsh), 1).words(made, "script")
        assert found[:-1] == words
        assert found[-1] == "sh -c script spark-overlay -d"
    for text, clause in (("", "a command is needed"), ("ssh '", "cannot be split into words")):
        with pytest.raises(DeliveryError, match=clause):
            parse_rsh(text)


def test_a_stopped_command_ends_its_connections(fars: Fars, source: Write, tmp_path: Path) -> None:
    fars.add("one")
    pid = tmp_path / "pid"
    (fars.folder / "one/before").write_text(f"echo $$ > {pid}.part; mv {pid}.part {pid}\nsleep 600\n")
    words = ["stage", "--to", "one:/opt", "--rsh", str(fars.ssh), f"a={source() / 'a.txt'}"]
    code = "import sys; from spark_overlay.cli import main; main(sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not pid.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert said == "spark-overlay: stopped; `spark-overlay stage --check` says what each host has\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_nothing_is_started_any_more_once_it_was_stopped() -> None:
    HERE.end()
    assert RemoteShell.run(HERE, Destination("", "/"), "exit 0").failed == "the staging was stopped"
