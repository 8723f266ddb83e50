"""A checklist is read and judged as its page says: what it shows is compared line by line, and nothing is left out."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

TOOLS = Path(__file__).parents[1] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import checklist
    import run_checklist
    import three_hosts
    import trial_host
finally:
    sys.path.remove(str(TOOLS))

HOSTS = three_hosts.HOSTS
LINES = st.lists(
    st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), max_size=6), max_size=6
)


def page(*blocks: str, title: str = "Step", criterion: str = "**Pass:** it\nholds.") -> str:
    return "\n\n".join(["# Page", f"## {title}", criterion, *blocks, ""])


def sh(words: str, commands: str = "true") -> str:
    return f"```sh {words}\n{commands}\n```"


def text(words: str, *lines: str) -> str:
    return "\n".join([f"```text {words}", *lines, "```"])


class LocalHosts(three_hosts.ThreeHosts):
    """Every host is this machine: the runner is tested without namespaces."""

    def command(self, host: str, words: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        self.home(host).mkdir(parents=True, exist_ok=True)
        return ["env", f"HOST={host}", *words]


def run(tmp_path: Path, *blocks: str, patience: float = 1.0) -> list[run_checklist.Result]:
    runner = run_checklist.Run(LocalHosts(tmp_path), tmp_path / "logs", patience)
    try:
        return list(runner.steps(checklist.parse(page(*blocks), HOSTS)))
    finally:
        for background in runner._running.values():
            run_checklist._kill(background.process)


# --- reading ---


def test_a_step_has_its_title_its_criterion_and_its_blocks_in_order() -> None:
    first = sh('host=x86 background=worker until="it listens" timeout=90', "serve &&\n  go")
    [step] = checklist.parse(page(first, text("expect", "…"), sh("host=spark-a ends=worker status=3")), HOSTS)
    assert (step.title, step.criterion) == ("Step", "it holds.")
    serve, ask = step.blocks
    assert (serve.host, serve.background, serve.until, serve.timeout_s) == ("x86", "worker", "it listens", 90)
    assert (serve.commands, serve.expected, serve.line) == ("serve &&\n  go", ("…",), 8)
    assert (ask.host, ask.ends, ask.status, ask.expected) == ("spark-a", "worker", 3, None)


def test_a_section_without_a_block_is_no_step_and_a_heading_in_a_block_no_section() -> None:
    whole = "# P\n\n## Reading\n\nText.\n\n" + page(sh("host=x86", "# one\n## two"))
    assert [step.title for step in checklist.parse(whole, HOSTS)] == ["Step"]


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        ([sh("")], "line 8: host= is none of spark-a, spark-b, x86"),
        ([sh("host=sparks")], "line 8: host=sparks is none of"),
        ([sh("host=x86 until=x")], "background and until go together"),
        ([sh("host=x86 untill=x")], "'untill' is none of"),
        ([sh("host=x86 timeout=soon")], "timeout=soon is no number"),
        ([sh("host=x86 timeout=-1")], "timeout=-1 is no number"),
        ([sh("host=x86 host=x86")], "host is said twice"),
        ([sh('host="x86')], "No closing quotation"),
        ([sh("host=x86", "  ")], "the block is empty"),
        ([sh("not-here=")], "not-here needs a reason"),
        ([text("expect", "a")], "no block that is run stands right before"),
        (
            [sh("host=x86"), text("expect", "a"), text("expect", "a")],
            "no block that is run stands right before",
        ),
        ([sh("host=x86"), text("shows=worker", "a")], "no background 'worker' runs there"),
        ([sh("host=x86 ends=worker")], "no background 'worker' runs there"),
        ([sh("host=x86 background=w until=x")] * 2, "the background 'w' runs already"),
        (["```sh host=x86\ntrue"], "the block has no end"),
        (["```sh\ncat\n```"], "host= is none of"),
        (["Nothing."], "no step with a block"),
    ],
)
def test_what_is_no_checklist_is_refused_with_its_line(blocks: list[str], sentence: str) -> None:
    with pytest.raises(checklist.ChecklistError, match=sentence.replace("(", r"\(")):
        checklist.parse(page(*blocks), HOSTS)


def test_a_step_without_a_criterion_and_a_block_before_the_first_step_are_refused() -> None:
    with pytest.raises(checklist.ChecklistError, match=r"'Step' has no paragraph that begins with \*\*Pass"):
        checklist.parse(page(sh("host=x86"), criterion="It passes."), HOSTS)
    with pytest.raises(checklist.ChecklistError, match="before the first step"):
        checklist.parse(sh("host=x86") + "\n" + page(sh("host=x86")), HOSTS)


@given(st.text())
def test_any_text_is_a_checklist_or_is_refused(given_text: str) -> None:
    try:
        steps = checklist.parse(given_text, HOSTS)
    except checklist.ChecklistError:
        return
    assert all(step.blocks for step in steps)


# --- comparing ---


@given(LINES)
def test_what_was_shown_matches_itself(lines: list[str]) -> None:
    assert checklist.matches(lines, lines)
    assert checklist.mismatch(lines, lines) == ""


@given(LINES, LINES)
def test_a_line_that_is_not_there_never_matches(before: list[str], after: list[str]) -> None:
    planted = "a line of the page that nothing shows"
    expected = [*before, planted, *after]
    shown = [*before, *after]
    assert not checklist.matches(expected, shown)
    assert checklist.mismatch(expected, shown)


@pytest.mark.parametrize(
    ("expected", "shown", "alike"),
    [
        (["took … s"], ["took 1.5 s"], True),
        (["took … s"], ["took 1.5 ms"], False),
        (["took … s"], ["it took 1.5 s"], False),
        (["a.c"], ["abc"], False),
        (["…"], [], True),
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["a", "…", "z"], ["a", "z"], True),
        (["a", "…", "z"], ["a", "z", "b"], False),
        (["…", "b", "…"], ["a", "b", "c"], True),
        (["…", "b", "c", "…"], ["b", "a", "b", "c"], True),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        (["a"], ["a  "], True),
        ([], [], True),
    ],
)
def test_dots_stand_for_what_varies(expected: list[str], shown: list[str], alike: bool) -> None:
    assert checklist.matches(expected, shown) is alike
    assert (checklist.mismatch(expected, shown) == "") is alike


def test_a_mismatch_names_the_line_and_shows_both() -> None:
    told = checklist.mismatch(["served … rounds", "failed 0"], ["served 12 rounds", "failed 1"])
    assert told.startswith("line 2 of the output is expected to be 'failed 0':")
    assert "\n served 12 rounds\n-failed 0\n+failed 1" in told


# --- running ---


def test_a_hosts_shell_keeps_exports_and_folder_for_its_next_block_alone(tmp_path: Path) -> None:
    results = run(
        tmp_path,
        sh("host=spark-a", f"export GIVEN='a  b'\ncd {tmp_path}"),
        sh("host=spark-a", 'echo "$GIVEN $PWD"'),
        text("expect", f"a  b {tmp_path}"),
        sh("host=spark-b", 'echo "${GIVEN-nothing}"'),
        text("expect", "nothing"),
    )
    assert [one.outcome for one in results] == ["passed"] * 3


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ([sh("host=x86", "echo a"), text("expect", "b")], "line 1 of the output is expected to be 'b'"),
        ([sh("host=x86", "false\ntrue")], "it ended with status 1 instead of 0; it showed nothing"),
        ([sh("host=x86 status=2", "true")], "it ended with status 0 instead of 2"),
        ([sh("host=x86 timeout=0.2", "echo a; sleep 60")], "it did not end within 0.2 s; its last lines:\na"),
        (
            [sh("host=x86 background=w until=ready", "echo a; exit 4")],
            "it ended with status 4; its last lines:\na",
        ),
        (
            [sh("host=x86 background=w until=ready timeout=0.3", "echo a; exec sleep 60")],
            "no line holds 'ready' within 0.3 s; its last lines:\na",
        ),
        (
            [
                sh("host=x86 background=w until=ready", "echo ready; exec sleep 60"),
                text("shows=w timeout=0.3", "b"),
            ],
            "it does not show what is expected within 0.3 s",
        ),
    ],
)
def test_what_does_not_do_as_the_page_says_fails_and_ends_the_run(
    tmp_path: Path, blocks: list[str], reason: str
) -> None:
    results = run(tmp_path, *blocks, sh("host=x86", "echo never"))
    assert results[-2].outcome == "failed"
    assert results[-2].reason.startswith(reason)
    assert results[-1].outcome == "not reached"
    assert not (tmp_path / "logs" / f"line-{results[-1].line}.log").exists()


def test_a_background_is_seen_listening_showing_and_ending(tmp_path: Path) -> None:
    serve = f"echo up; echo listening on 1; until [ -f {tmp_path}/go ]; do sleep 0.05; done; echo served"
    results = run(
        tmp_path,
        sh("host=x86 background=w until=listening timeout=20", serve),
        text("expect", "up", "listening on …"),
        sh("host=x86 ends=w", f"touch {tmp_path}/go"),
    )
    assert [one.outcome for one in results] == ["passed", "passed"]


def test_a_background_may_be_expected_to_end_by_itself(tmp_path: Path) -> None:
    until = f"until [ -f {tmp_path}/go ]; do sleep 0.05; done"
    results = run(
        tmp_path,
        sh("host=x86 background=w until=up timeout=20", f"echo up; {until}; echo gone"),
        sh("host=spark-a", f"touch {tmp_path}/go"),
        text("shows=w ends timeout=20", "gone"),
        sh("host=x86"),
    )
    assert [one.outcome for one in results] == ["passed"] * 4


def test_a_background_that_ends_unasked_fails_the_next_block(tmp_path: Path) -> None:
    ended = f"until [ -f {tmp_path}/ended ]; do sleep 0.05; done"
    results = run(
        tmp_path,
        sh("host=x86 background=w until=up", f"echo up; trap 'touch {tmp_path}/ended' EXIT; exit 5"),
        sh("host=x86", f"{ended}; sleep 0.2"),
        sh("host=x86", "true"),
    )
    assert results[-1].outcome in ("failed", "not reached")
    assert "w has ended with status 5" in next(one.reason for one in results if one.outcome == "failed")


def test_a_retried_block_is_run_until_it_shows_what_is_expected(tmp_path: Path) -> None:
    count = f"echo x >> {tmp_path}/count; wc -l < {tmp_path}/count"
    results = run(tmp_path, sh("host=x86 retry=30", count), text("expect", "2"))
    assert [one.outcome for one in results] == ["passed"]


def test_what_is_for_other_hardware_is_counted_with_its_reason_even_after_a_failure(tmp_path: Path) -> None:
    results = run(
        tmp_path, sh("host=x86", "false"), sh('not-here="needs a GPU"', "nvidia-smi"), text("expect", "H200")
    )
    assert [(one.outcome, one.reason) for one in results[1:]] == [("not run here", "needs a GPU")]
    assert run_checklist.summary(results) == "0 passed, 1 failed, 1 not run here, 0 not reached"


def test_the_report_has_a_testcase_for_every_block(tmp_path: Path) -> None:
    results = run(tmp_path, sh("host=x86"), sh("host=x86", "printf '\\e[1mbad'; false"), sh("host=x86"))
    results += run(tmp_path / "more", sh('not-here="needs a GPU"'))
    suite = ElementTree.fromstring(ElementTree.tostring(run_checklist.junit("docs/page.md", results)))
    cases = list(suite.iter("testcase"))
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"], ["skipped"]]
    assert {case.get("classname") for case in cases} == {"docs.page"}
    assert cases[3].find("skipped") is not None


# --- the commands ---


def test_the_command_lists_the_steps_and_refuses_a_page_that_is_none(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(page(sh("host=x86")), encoding="utf-8")
    bad.write_text("# nothing\n", encoding="utf-8")
    tool = [sys.executable, str(TOOLS / "run_checklist.py"), "--list"]
    listed = subprocess.run([*tool, str(good)], capture_output=True, text=True, check=True, timeout=60)
    assert listed.stdout == "Step: it holds.\n"
    refused = subprocess.run([*tool, str(bad)], capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, refused.stderr) == (
        2,
        "run_checklist: the page has no step with a block to run\n",
    )


def test_a_user_who_is_not_root_and_a_machine_without_tools_are_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/usr/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(three_hosts.HostsError, match="needs root"):
        three_hosts.check_possible()
    monkeypatch.setattr(shutil, "which", lambda name, path: None if name == "ip" else name)
    with pytest.raises(three_hosts.HostsError, match="need ip"):
        three_hosts.check_possible()


def test_every_host_knows_the_others_by_the_address_of_their_direct_link() -> None:
    assert trial_host.hosts_file("x86").splitlines() == [
        "127.0.0.1 localhost",
        "10.202.28.1 x86",
        "10.202.28.2 spark-a",
        "10.202.29.2 spark-b",
    ]
    assert "10.202.30.1 spark-a" in trial_host.hosts_file("spark-b").splitlines()


def test_a_bind_must_be_a_folder_and_an_absolute_place(tmp_path: Path) -> None:
    assert dict(three_hosts.parse_binds([f"{tmp_path}=/srv/models"])) == {"/srv/models": tmp_path}
    for wrong in (f"{tmp_path}=srv", f"{tmp_path}/missing=/srv", str(tmp_path)):
        with pytest.raises(three_hosts.HostsError, match="--bind"):
            dict(three_hosts.parse_binds([wrong]))


PAGES = sorted(
    path
    for path in (TOOLS.parent / "docs" / "operations").glob("*.md")
    if "```sh host=" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_checklists_of_the_docs_can_be_read(path: Path) -> None:
    steps = checklist.parse(path.read_text(encoding="utf-8"), HOSTS)
    assert json.dumps([step.criterion for step in steps])
