"""`logit-ab` against servers with planted differences: each is seen, noise alone is not, and what cannot be compared is
refused.
"""

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engram_completions import Planted, completions
from engram_remote.cli import main
from engram_remote.logit_ab.compare import Worst, judge
from engram_remote.logit_ab.measure import distance
from engram_remote.logit_ab.record import Run, Sample, read_run, run_text

LONG = 10_000
"""Characters: between those of a short prompt and of the 8k one."""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["logit-ab", *arguments])


def record(
    folder: Path,
    label: str,
    planted: Planted | None = None,
    *more: str,
    seed: int = 0,
    lengths: str = "short 8k",
) -> Path:
    out = folder / f"{label}.jsonl"
    with completions(planted, seed) as server:
        names = [argument for name in lengths.split() for argument in ("--length", name)]
        done = call(
            "run", "--url", server.url, "--label", label, "--out", str(out), "--max-tokens", "12", "--top", "5",
            *names, *more,
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    return out


def compared(candidate: Path, *baselines: Path, more: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    named = [argument for path in baselines for argument in ("--baseline", str(path))]
    done = call("compare", *named, str(candidate), "--json", *more)
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return done.exit_code, found


def test_every_request_is_greedy_and_has_a_salt_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with completions() as server:
        done = call(
            "run", "--url", f"{server.url}/v1/", "--label", "A1", "--out", str(tmp_path / "a"), "--repeats", "3",
            "--length", "short", "--length", "8k", "--max-tokens", "4", "--priority", "10",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert len(server.requests) == 6
        assert len({asked["cache_salt"] for asked in server.requests}) == 6
        for asked in server.requests:
            assert (asked["temperature"], asked["logprobs"], asked["max_tokens"]) == (0, 20, 4)
            assert (asked["prompt_logprobs"], asked["priority"], asked["model"]) == (0, 10, "tiny")
        assert set(server.authorizations) == {"Bearer sesame"}
    run, samples = read_run(tmp_path / "a")
    assert (run.label, run.model) == ("A1", "tiny")
    assert [(sample.prompt, sample.repeat) for sample in samples] == [
        (name, repeat) for repeat in range(3) for name in ("short", "8k")
    ]
    assert [sample.prompt_tokens for sample in samples[:2]] == [64, 8192]
    assert samples[1].prompt_logprobs is not None
    assert len(samples[1].prompt_logprobs) == 8191


def test_prompts_of_three_lengths_come_from_a_file_of_texts(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"Opinion {n}. " + "law " * 4000}) for n in range(12)))
    out = record(tmp_path, "A", None, "--data", str(data), "--repeats", "1", lengths="short 8k 32k")
    _, samples = read_run(out)
    assert [sample.prompt_tokens for sample in samples] == [64, 8192, 32768]


def test_the_same_engine_twice_is_identical(tmp_path: Path) -> None:
    runs = [record(tmp_path, label) for label in ("A1", "A2", "B1")]
    status, found = compared(runs[2], *runs[:2])
    assert (status, found["verdict"]) == (0, "identical")
    assert {(row["candidate"], row["prompt"], row["verdict"]) for row in found["rows"]} == {
        ("B1", "short", "identical"),
        ("B1", "8k", "identical"),
    }
    assert {row["floor"]["pairs"] for row in found["rows"]} == {6}


def noisy(**more: Any) -> Planted:
    return Planted(noise=0.01, noisy_from=LONG, **more)


def test_noise_that_the_baseline_has_too_is_within_the_floor(tmp_path: Path) -> None:
    runs = [record(tmp_path, label, noisy(), seed=seed) for seed, label in enumerate(("A1", "A2", "B1"))]
    status, found = compared(runs[2], *runs[:2])
    assert (status, found["verdict"]) == (0, "within the floor")
    assert [row["verdict"] for row in found["rows"]] == ["identical", "within the floor"]
    floor = found["rows"][1]["floor"]
    assert 0 < floor["delta"] <= 0.02


@pytest.mark.parametrize(
    ("planted", "prompt", "says"),
    [
        (noisy(shift={11: 1e-6}, only=LONG), "short", "a logprob differs by 1e-06, the baseline's own by 0"),
        (noisy(shift={5: 0.5}), "8k", "a logprob differs by 0.4986"),
        (noisy(other=7, only=LONG), "short", "token 7 differs, the baseline's own never do"),
        (noisy(other=0), "8k", "token 0 differs, the baseline's own never do"),
        (noisy(prompt_shift=1e-5), "8k", "a prompt logprob differs by 1e-05, the baseline's own by 0"),
    ],
)
def test_a_planted_difference_is_beyond_the_floor(
    tmp_path: Path, planted: Planted, prompt: str, says: str
) -> None:
    baselines = [record(tmp_path, label, noisy(), seed=seed) for seed, label in enumerate(("A1", "A2"))]
    candidate = record(tmp_path, "B1", planted, seed=9)
    status, found = compared(candidate, *baselines)
    assert (status, found["verdict"]) == (1, "different")
    [row] = [row for row in found["rows"] if row["prompt"] == prompt]
    assert row["verdict"] == "different"
    assert says in row["reason"]
    with_words = call(
        "compare", "--baseline", str(baselines[0]), "--baseline", str(baselines[1]), str(candidate)
    )
    assert with_words.exit_code == 1
    assert "verdict: different" in with_words.output


def test_one_run_with_repeats_is_a_baseline_and_one_sample_is_none(tmp_path: Path) -> None:
    twice, candidate = record(tmp_path, "A"), record(tmp_path, "B")
    assert compared(candidate, twice)[1]["verdict"] == "identical"
    once = record(tmp_path, "A1", None, "--repeats", "1")
    done = call("compare", "--baseline", str(once), str(candidate))
    assert done.exit_code == 2
    assert "prompt short has one baseline sample: two are needed" in done.output


# ---- the verdict, by calculation ----


def worst(diverged: int | None, delta: float, prompt: float | None = None) -> Worst:
    return Worst(1, diverged, delta, prompt)


@pytest.mark.parametrize(
    ("floor", "found", "verdict"),
    [
        (worst(None, 0.0), worst(None, 0.0), "identical"),
        (worst(None, 0.1), worst(None, 0.2), "within the floor"),
        (worst(None, 0.1), worst(None, 0.2000001), "different"),
        (worst(None, 0.0), worst(None, 1e-12), "different"),
        (worst(None, 0.1), worst(9, 0.1), "different"),
        (worst(9, 0.1), worst(4, 0.1), "within the floor"),  # (4 + 1) * 2 = 9 + 1
        (worst(9, 0.1), worst(3, 0.1), "different"),
        (worst(9, 0.1), worst(None, 0.0), "identical"),
        (worst(None, 0.1, 0.1), worst(None, 0.0, 0.2), "within the floor"),
        (worst(None, 0.1, 0.0), worst(None, 0.1, 0.2), "different"),
        (worst(None, 0.1, None), worst(None, 0.1, None), "within the floor"),
    ],
)
def test_verdicts_follow_the_rule_that_is_written(floor: Worst, found: Worst, verdict: str) -> None:
    assert judge(floor, found, 2.0)[0] == verdict


def sample(tokens: str, logprobs: list[float], **more: Any) -> Sample:
    top = more.pop("top", [{token: value} for token, value in zip(tokens, logprobs, strict=True)])
    return Sample(
        prompt="p", prompt_sha256="0", prompt_tokens=3, repeat=0,
        tokens=list(tokens), logprobs=logprobs, top=top, **more,
    )  # fmt: skip


def test_behind_the_first_token_that_differs_nothing_counts() -> None:
    one, other = sample("abcd", [-1.0, -2.0, -3.0, -4.0]), sample("abxd", [-1.0, -2.5, -9.0, -9.0])
    found = distance(one, other)
    assert (found.diverged, found.delta) == (2, 0.5)


def test_at_the_divergence_what_both_name_counts() -> None:
    both = [{"a": -1.0, "b": -1.1}], [{"a": -1.3, "b": -1.0}]
    one, other = sample("a", [-1.0], top=both[0]), sample("b", [-1.0], top=both[1])
    assert distance(one, other).delta == pytest.approx(0.3)


def test_a_token_that_only_one_names_differs_by_what_it_is_above_the_others_least() -> None:
    one = sample("a", [-0.5], top=[{"a": -0.5, "b": -1.0, "c": -2.0}])
    other = sample("a", [-0.5], top=[{"a": -0.5, "d": -1.5, "e": -4.0}])
    found = distance(one, other)
    assert found.delta == distance(other, one).delta == 3.0  # b is at most -4.0 there
    assert not found.identical
    tied = sample("a", [-0.5], top=[{"a": -0.5, "b": -1.0, "f": -2.0}])  # of two alike either may be named
    assert distance(one, tied).identical


def test_an_answer_that_ends_earlier_differs_where_it_ends() -> None:
    assert distance(sample("abc", [-1.0] * 3), sample("ab", [-1.0] * 2)).diverged == 2


# ---- refusals ----


def spoiled(change: Callable[[Any], Any]) -> Planted:
    return Planted(spoil=change)


@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (Planted(status=400, said="logprobs too many"), 'HTTP 400: {"error": "logprobs too many"}'),
        (Planted(models=("a", "b")), "has 2 models, so one must be named: ['a', 'b']"),
        (spoiled(lambda reply: reply.pop("choices")), "the reply has no choices.0"),
        (spoiled(lambda reply: reply.pop("usage")), "the reply has no usage.prompt_tokens"),
        (spoiled(lambda reply: reply["choices"][0].update(logprobs=None)), "the reply has no token_logprobs"),
        (
            spoiled(lambda reply: reply["choices"][0]["logprobs"]["tokens"].pop()),
            "logprobs are not as expected",
        ),
        (
            spoiled(
                lambda reply: reply["choices"][0]["logprobs"]["token_logprobs"].__setitem__(0, float("nan"))
            ),
            "logprobs are not as expected",
        ),
        (
            spoiled(lambda reply: reply["choices"][0]["prompt_logprobs"].__setitem__(1, None)),
            "logprobs are not as expected",
        ),
    ],
)
def test_a_server_that_cannot_be_used_is_told_in_a_sentence(
    tmp_path: Path, planted: Planted, says: str
) -> None:
    with completions(planted) as server:
        done = call(
            "run", "--url", server.url, "--label", "A", "--out", str(tmp_path / "a"), "--length", "short"
        )  # fmt: skip
    assert done.exit_code == 2, done.output
    assert says in done.output
    assert done.output.splitlines()[-1].startswith("Error: ")  # and no bar behind it
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("folder", ["none", "file"])
def test_a_place_where_no_file_can_be_is_told_before_anything_is_asked(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with completions() as server:
        done = call("run", "--url", server.url, "--label", "A", "--out", str(tmp_path / folder / "a"))
        assert not server.requests
    assert done.exit_code == 2
    assert done.output == f"Error: --out {tmp_path / folder / 'a'}: its folder does not exist\n"


@pytest.mark.parametrize(
    ("option", "value"), [("label", ""), ("label", "a\nb"), ("label", "\udcff"), ("model", "\udcff")]
)
def test_a_name_that_is_none_is_told_before_anything_is_asked(
    tmp_path: Path, option: str, value: str
) -> None:
    names = {"label": "A", "model": "m"} | {option: value}
    words = [word for name, text in names.items() for word in (f"--{name}", text)]
    done = call("run", "--url", "http://192.0.2.1", "--out", str(tmp_path / "a"), *words)
    assert (done.exit_code, done.output) == (
        2,
        f"Error: --{option}: a name in one line is needed, not {value!r}\n",
    )


def test_a_server_that_sends_a_byte_now_and_then_is_given_up_at_the_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        given_up = threading.Event()

        def drip() -> None:
            with listener.accept()[0] as one, suppress(OSError):
                one.recv(65536)
                one.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                for _ in range(1200):
                    one.sendall(b" ")
                    if given_up.wait(0.05):
                        return

        other = threading.Thread(target=drip)
        other.start()
        url, begun = f"http://127.0.0.1:{listener.getsockname()[1]}", time.monotonic()
        done = call("run", "--url", url, "--label", "A", "--out", str(tmp_path / "a"), "--timeout-s", "0.5")
        took = time.monotonic() - begun
        given_up.set()
        other.join()
    assert done.exit_code == 2
    assert f"{url}/v1/models: the reply took longer than 0.5 s" in done.output
    assert took < 30


def test_a_server_that_speaks_no_http_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as one:
                one.recv(65536)
                one.sendall(b"SSH-2.0-x\r\n")

        other = threading.Thread(target=answer)
        other.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = call("run", "--url", url, "--label", "A", "--out", str(tmp_path / "a"))
        other.join()
    assert done.exit_code == 2
    assert f"{url}/v1/models: does not speak HTTP" in done.output


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://host",
        "http://",
        "http://[::1",
        "http://h:x",
        "http://h:65536",
        "http://h:0",
        "http://a b",
    ],
)
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    done = call("run", "--url", url, "--label", "A", "--out", str(tmp_path / "a"))
    assert done.exit_code == 2
    assert f"{url!r} is no http:// or https:// address" in done.output


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "http://me:secret@127.0.0.1:1",
            "an address holds no name or password; a key of the API goes by OPENAI",
        ),
        ("http://127.0.0.1:1/?a=b", "'http://127.0.0.1:1/?a=b' has a query or a fragment"),
        ("http://127.0.0.1:1/#a", "'http://127.0.0.1:1/#a' has a query or a fragment"),
    ],
)
def test_an_address_with_what_no_call_would_have_is_refused(tmp_path: Path, url: str, said: str) -> None:
    done = call("run", "--url", url, "--label", "A", "--out", str(tmp_path / "a"))
    assert done.exit_code == 2
    assert said in done.output
    assert "secret" not in done.output


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with completions() as server:
        url = server.url
    done = call("run", "--url", url, "--label", "A", "--out", str(tmp_path / "a"))
    assert done.exit_code == 2
    assert f"{url}/v1/models: " in done.output


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_what_is_no_timeout_or_factor_is_refused(tmp_path: Path, value: str) -> None:
    done = call(
        "run", "--url", "http://h", "--label", "A", "--out", str(tmp_path / "a"), "--timeout-s", value
    )
    assert "--timeout-s: a finite number above 0 is needed" in done.output
    done = call("compare", "--baseline", "a", "b", "--factor", value)
    assert "--factor: a finite number above 0 is needed" in done.output


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], "line 1 is not JSON"),
        (['{"other": 1}'], "line 1 has no text under text, prompt, content"),
        (['{"text": 5}'], "line 1 has no text"),
        (["[" * 200_000], "line 1 is not JSON"),
        (['{"text": "\\ud800"}'], "line 1 has half of a character"),
        (["\udcff"], "is not text in UTF-8"),
        (['{"text": "short"}'], "5 characters of text, where prompt short needs 256"),
    ],
)
def test_a_file_of_texts_that_cannot_be_used_is_refused(tmp_path: Path, lines: list[str], says: str) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines), errors="surrogateescape")
    done = call(
        "run", "--url", "http://192.0.2.1", "--label", "A", "--out", str(tmp_path / "a"), "--data", str(data)
    )  # fmt: skip
    assert done.exit_code == 2
    assert says in done.output


def test_runs_that_asked_otherwise_are_not_compared(tmp_path: Path) -> None:
    baseline = record(tmp_path, "A")
    other = record(tmp_path, "B", None, "--max-tokens", "13")
    prompts = record(tmp_path, "C", None, "--seed", "1")
    same_label = record(tmp_path / ".." / tmp_path.name, "A")
    for candidate, says in (
        (other, "run B: max_tokens is 13, in A 12"),
        (prompts, "run C has other prompts than A"),
        (same_label, "labels must differ: ['A', 'A']"),
    ):
        done = call("compare", "--baseline", str(baseline), str(candidate))
        assert done.exit_code == 2
        assert says in done.output


@pytest.mark.parametrize("lacks", [0, 1, 2])
def test_runs_whose_prompts_are_not_known_alike_are_not_compared(tmp_path: Path, lacks: int) -> None:
    """A candidate without the prompt's log-probabilities was called identical: no row of the prompt was compared."""
    whole = [-1.0, -2.0, -3.0]
    given = {0: None, 1: whole[:2], 2: []}[lacks]
    paths: list[Path] = []
    for label, logprobs in (("A", whole), ("B", given)):
        run = Run(label=label, url="u", model="m", max_tokens=1, top=1)
        one = sample("a", [-1.0], prompt_logprobs=logprobs)
        paths.append(tmp_path / label)
        paths[-1].write_text(run_text(run, [one, one.model_copy(update={"repeat": 1})]))
    for baseline, candidate in (paths, paths[::-1]):
        done = call("compare", "--baseline", str(baseline), str(candidate))
        assert done.exit_code == 2
        assert "prompt p has log-probabilities of " in done.output


def test_a_label_or_token_is_shown_and_read_as_it_is(tmp_path: Path) -> None:
    one = sample("a", [-1.0]).model_copy(update={"tokens": ["\u2028"], "top": [{"\u2028": -1.0}]})
    paths: list[Path] = []
    for label in ("A", "[/b]"):
        paths.append(tmp_path / f"{len(paths)}")
        paths[-1].write_text(run_text(Run(label=label, url="u", model="m", max_tokens=1, top=1), [one, one]))
    done = call("compare", "--baseline", str(paths[0]), str(paths[1]))
    assert done.exit_code == 0, done.output
    assert "[/b]" in done.output


def test_a_run_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = Run(label="A", url="u", model="m", max_tokens=2, top=1)
    path.write_text(run_text(run, [sample("ab", [-1.0, -2.0])]))
    assert read_run(path) == (run, [sample("ab", [-1.0, -2.0])])
    good = path.read_text()
    for old, new, says in (
        ('"logprobs":[-1.0,-2.0]', '"logprobs":[-1.0]', "line 2: line: Value error, 2 tokens"),
        ('"repeat":0', '"repeat":-1', "line 2: repeat"),
        ('"repeat":0', '"repeat":0,"repeat":0', "line 2: is not proper JSON (a name stands twice"),
        ("-2.0]", "NaN]", "line 2: logprobs.1"),
        ('"label":"A"', '"label":""', "line 1: label"),
        ('"top":1', '"top":1,"more":2', "line 1: more"),
        ("{", "[", "line 1"),
        ("{", "[" * 200_000, "line 1: is not proper JSON"),
    ):
        assert old in good
        path.write_text(good.replace(old, new, 1))
        done = call("compare", "--baseline", str(path), str(path))
        assert done.exit_code == 2
        assert says in done.output.replace("\n", " ")
    path.write_bytes(b"\xff\n\n")
    assert "is not text in UTF-8" in call("compare", "--baseline", str(path), str(path)).output
    path.write_text(good.splitlines()[0] + "\n")
    assert "holds no samples" in call("compare", "--baseline", str(path), str(path)).output
