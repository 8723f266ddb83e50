"""What cannot be launched is one sentence a problem, with its file and its field, and nothing is started."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch_rig import Place
from spark_overlay.launching.layers import read_launch
from spark_overlay.launching.names import OWNED_OPTIONS
from spark_overlay.launching.problems import ConfigError
from spark_overlay.launching.render import render
from spark_overlay.launching.sections import option_name

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("prot = 1\n", "site.toml: prot: no such key; did you mean port?"),
        ("port = 'x'\n", "site.toml: port: 'x' is given where integer is needed"),
        ("port = true\n", "site.toml: port: a number is needed, not True"),
        ("port = 0\n", "site.toml: port: 0 is given where greater than or equal to 1 is needed"),
        ("host = ''\n", "site.toml: host: it is empty; leave it out instead"),
        ("identity = 'ab'\n", "site.toml: identity: 64 lower-case hex digits are needed, not 'ab'"),
        (
            "[container]\nshmsize = '1g'\n",
            "site.toml: container.shmsize: no such key; did you mean shm_size?",
        ),
        ("[container]\nshm_size = 'big'\n", "site.toml: container.shm_size: a size such as 16g is needed, not 'big'"),
        ("[container]\ncache = 'x'\n", "site.toml: container.cache: an absolute path is needed, not 'x'"),
        ("[remote]\ntimout_ms = 1\n", "site.toml: remote.timout_ms: no such setting; did you mean timeout_ms?"),
        ("[remote]\nidentity = 'x'\n", "site.toml: remote.identity: it is not set here: set identity in the site"),
        ("[remote]\nstart_id = 'x'\n", "site.toml: remote.start_id: it is not set here: use the option --start-id"),
        ("[remote]\ntimeout_ms = -1\n", "site.toml: remote.timeout_ms: a finite number above 0 is needed, not -1.0"),
        (
            "[remote]\ntrip = [1]\n",
            "site.toml: remote.trip: [1] is given where text, a number, or true or false is needed",
        ),
        ("[remote]\nasync_nap_us = 20\n", None),
        ("[tables]\nserver = 'x'\n", "site.toml: tables.server: no such setting; did you mean servers?"),
        ("[tables]\nready_file = 'x'\n", "site.toml: tables.ready_file: it is not set here: the launcher sets it"),
        ("[tables]\ntables = '/t'\n", "site.toml: tables.servers: it must be set: the table servers"),
        (
            "[tables]\ntables = '/t'\nservers = 'tcp://h:1,tcp://h:2,tcp://h:3'\n",
            "site.toml: tables.servers: 3 servers are given for 1 ranks: one, or one for each",
        ),
        (
            "[tables]\ntables = '/t'\nservers = 'tcp://h'\n",
            "site.toml: tables.servers: entry 0: endpoint 'tcp://h': the port is missing (form: tcp://host:port?bind="
            "address, rdma://host:port?bind=address or shm://name)",
        ),
        ("[speculative]\nx = nan\n", "site.toml: speculative.x: a finite number is needed, not nan"),
        ("[speculative]\nx = [{ y = \"a\\u0000\" }]\n", "site.toml: speculative.x.y: a text with a NUL byte is given"),
        ("[environment]\nX = 'a'\nY = \"\\u0000\"\n", "site.toml: environment.Y: a text with a NUL byte is given"),
        (
            "[speculative]\nx = 2024-01-01\n",
            "site.toml: speculative.x: datetime.date(2024, 1, 1) is given where text, a number, true or false, "
            "a list or a table is needed",
        ),
        ("[engine]\nport = 1\n", "site.toml: engine.port: the renderer writes it: set the site's port instead"),
        (
            "[engine]\nmax_model_len = 1\n",
            "site.toml: engine.max_model_len: an option's name without dashes in front is needed, such as "
            "max-model-len",
        ),
        (
            "[engine]\nspeculative-config = '{}'\n",
            "site.toml: engine.speculative-config: the renderer writes it: set [speculative] instead",
        ),
        (
            "[speculative]\nmodel = 'x'\n",
            "site.toml: speculative.model: the renderer writes it: set the site's drafter instead",
        ),
        (
            "[environment]\nVLLM_DSPARK_REMOTE_TRIP = 3\n",
            "site.toml: environment.VLLM_DSPARK_REMOTE_TRIP: it is not set here: use [remote] and the site",
        ),
        (
            "[environment]\nVLLM_ENGRAM_REMOTE = 'x'\n",
            "site.toml: environment.VLLM_ENGRAM_REMOTE: it is not set here: use [tables]",
        ),
        (
            "[environment]\n'A B' = 1\n",
            "site.toml: environment.A B: a variable's name is needed: letters, digits and _",
        ),
        (
            "tensor_parallel_size = 3\nhosts = ['a', 'b']\n",
            "site.toml: tensor_parallel_size: 3 ranks cannot be shared alike by 2 hosts",
        ),
        ("tensor_parallel_size = 2\nhosts = ['a', 'a']\n", "site.toml: hosts: one address is given twice"),
        ("hosts = ['a b']\n", "site.toml: hosts.0: an address or a host's name is needed, not 'a b'"),
        ("host = '-x y'\n", "site.toml: host: an address or a host's name is needed, not '-x y'"),
        (
            "[remote]\npolicy = 'capacty'\n",
            "site.toml: remote.policy: 'capacty' is given where 'capacity', 'resilience' or 'shadow' is needed",
        ),
        ("= 1\n", "site.toml: it is not TOML: Invalid statement (at line 7, column 1)"),
    ],
)  # fmt: skip
def test_each_mistake_in_a_site_is_one_line_that_names_file_and_field(
    place: Place, more: str, line: str | None
) -> None:
    place.write(more)
    lines = place.refused("--rank", "0")
    if line is None:
        assert lines[0].startswith("site.toml: remote.async_nap_us: ")
    else:
        assert lines == [line]


@pytest.mark.parametrize("name", ["HF_TOKEN", "VLLM_API_KEY", "my_password", "AWS_SECRET_ACCESS_KEY"])
def test_a_secret_in_the_environment_is_refused_and_not_repeated(place: Place, name: str) -> None:
    place.write(f'[environment]\n{name} = "hush-hush"\n')
    (line,) = place.refused()
    assert line == (
        f"site.toml: environment.{name}: secrets are shown nowhere: set it in the environment of spark-overlay itself, "
        "which the engine inherits"
    )


def test_a_secret_among_the_options_is_refused_wherever_it_stands(place: Place) -> None:
    assert "secrets are shown nowhere" in place.refused("--", "--api-key", "hush-hush")[0]
    place.write('[engine]\napi-key = "hush-hush"\n')
    lines = place.refused()
    assert "engine.api-key: secrets are shown nowhere" in lines[0]
    assert "hush-hush" not in "".join(lines)
    place.write('[engine]\ntokenizer = "/t"\nmax-num-batched-tokens = 8\n')
    assert "/t" in place.printed()["command"]


@pytest.mark.parametrize(
    "word",
    [
        *("--speculative-config", "--speculative_config={}", "--speculative-config.model=x", "-tp", "-sc"),
        *("--port=1", "--nnodes", "-r", "--master-addr", "--config"),
    ],
)
def test_an_extra_option_that_the_renderer_writes_is_refused(place: Place, word: str) -> None:
    (line,) = place.refused("--", word, "x")
    assert line.startswith(f"{word.split('=')[0]}: the renderer writes it: set ")
    assert option_name(word) in OWNED_OPTIONS


def test_several_mistakes_are_all_told_each_in_its_own_file(place: Place) -> None:
    own = place.config('extends = "C-capacity"\ndrafter_weigths = true\n[remote]\npolcy = "shadow"\n')
    place.write("prot = 1\n[remote]\ntimout_ms = 1\n")
    lines = place.refused("--set", "hots=a", config=str(own))
    assert lines == [
        "own.toml: drafter_weigths: no such key; did you mean drafter_weights?",
        "site.toml: prot: no such key; did you mean port?",
        "--set: hots: no such key; did you mean hosts?",
    ]


@pytest.mark.parametrize("missing", ["target", "drafter", "worker", "identity_file"])
def test_what_the_site_must_say_is_named(place: Place, missing: str) -> None:
    lines = [line for line in place.site.read_text().splitlines() if not line.startswith(missing)]
    place.site.write_text("\n".join(lines) + "\n")
    (line,) = place.refused()
    assert line.startswith(f"site.toml: {missing}: it must be set")


def test_without_a_site_the_place_is_still_named(place: Place) -> None:
    with pytest.raises(ConfigError, match="the site: target: it must be set: the target model"):
        render(read_launch("A-local", None, ()), None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "holds no identity: it is not what `x86-worker identity` writes"),
        ("[]", "holds no identity: it is not what `x86-worker identity` writes"),
        (f'{{"identity": "{DIGEST}", "markov_identity": 7}}', "holds no markov_identity: it is not what"),
    ],
)
def test_an_identity_file_that_is_none_is_refused(place: Place, text: str | None, said: str) -> None:
    if text is None:
        place.identity.unlink()
    else:
        place.identity.write_text(text)
    (line,) = place.refused()
    assert line.startswith(f"site.toml: identity_file: identity.json {said}")


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        ("tcp://h", "endpoint 'tcp://h': the port is missing"),
        ("tcp://h:0", "endpoint 'tcp://h:0': port 0 can be listened on but not connected to"),
    ],
)
def test_a_worker_that_nobody_could_connect_to_is_refused(place: Place, worker: str, said: str) -> None:
    (line,) = place.refused("--set", f"worker={worker}")
    assert line.startswith(f"--set: worker: {said}")


def test_a_digest_that_is_not_that_of_the_file_is_refused(place: Place) -> None:
    (line,) = place.refused("--set", f"identity={DIGEST}")
    assert line == "--set: identity: it is not that of identity.json: leave one of the two out"


def test_asynchronous_rounds_are_refused_in_one_sentence_until_they_are_installed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_overlay.launching.sections.NOT_BUILT_KEYS", frozenset({"async"}))
    monkeypatch.setattr("spark_overlay.launching.sections.REMOTE_KEYS", {"policy": ""})
    assert place.refused(config="C-capacity-async") == [
        "C-capacity-async.toml: remote.async: the asynchronous hand-off is not installed: use C-capacity, whose rounds "
        "are synchronous"
    ]


def test_another_setting_that_is_not_built_is_told_as_such(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_overlay.launching.sections.NOT_BUILT_KEYS", frozenset({"warp"}))
    place.write("[remote]\nwarp = 1\n")
    assert place.refused() == ["site.toml: remote.warp: this setting is not built yet in this version"]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.26.0", "vLLM 0.26.0 has no such setting and always drops the block: use C-capacity"),
        ("0.33.0", "vLLM 0.33.0 drops no block for DSpark: use C-capacity"),
        ("0.33.0+cpu", "vLLM 0.33.0+cpu drops no block for DSpark: use C-capacity"),
    ],
)
def test_nodrop_is_refused_where_there_is_no_drop_or_no_way_to_leave_it_out(
    place: Place, version: str, said: str
) -> None:
    lines = place.refused("--set", f"vllm_version={version}", config="C-capacity-nodrop")
    assert lines == [f"C-capacity-nodrop.toml: speculative.disable_eagle_block_drop: {said}"]


@pytest.mark.parametrize("config", ["A-local", "C-shadow", "C-resilience"])
def test_the_drop_is_left_out_in_capacity_alone(place: Place, config: str) -> None:
    lines = place.refused("--set", "speculative.disable_eagle_block_drop=true", config=config)
    assert len(lines) == 1
    assert lines[0].endswith("keeps the drafter's own KV, which the drop protects: in capacity only")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[remote]\npolicy = 'capacity'\n", "speculative: it must be set with method 'dspark' to draft remotely"),
        (
            "[remote]\n[speculative]\nmethod = 'eagle'\n",
            "own.toml: speculative.method: 'eagle' is given where 'dspark' is needed to draft remotely",
        ),
        (
            "extends = 'C-capacity'\n[remote]\npolicy = 'shadow'\n",
            "C-capacity.toml: drafter_weights: policy shadow drafts on this host too, which needs weights",
        ),
        ("extends = 'C-capacty'\n", "own.toml: extends: no config 'C-capacty' is shipped; did you mean C-capacity?"),
        ("extends = 'own.toml'\n", "own.toml: extends: it goes in a circle: own.toml -> own.toml"),
        ("extends = 'gone.toml'\n", "gone.toml: it cannot be read: No such file or directory"),
        ("extends = 3\n", "own.toml: extends: 3 is given where string is needed"),
    ],
)  # fmt: skip
def test_what_a_config_may_not_combine_is_named(place: Place, text: str, line: str) -> None:
    (found,) = place.refused(config=str(place.config(text)))
    assert found.removeprefix("site.toml: ") == line


def test_configs_that_extend_each_other_without_end_are_refused(place: Place) -> None:
    for number in range(20):
        place.config(f'extends = "{number + 1}.toml"\n', f"{number}.toml")
    assert place.refused(config=str(place.root / "0.toml")) == [
        "16.toml: extends: more than 16 configs extend each other"
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("c-capacity", "did you mean C-capacity?"),
        ("zzz", "there are A-local, C-capacity, "),
    ],
)
def test_an_unknown_config_is_told_with_what_there_is(place: Place, name: str, said: str) -> None:
    (line,) = place.refused(config=name)
    assert line.startswith(f"--config: no config '{name}' is shipped; {said}")


@pytest.mark.parametrize("data", [b"\xff", b"#" * (1 << 20) + b"#"])
def test_a_file_that_is_no_text_of_some_size_is_refused(place: Place, data: bytes) -> None:
    place.site.write_bytes(data)
    assert place.refused()[0] in (
        "site.toml: it is not UTF-8 text",
        "site.toml: more than 1048576 bytes, which no config is",
    )


@pytest.mark.parametrize("setting", ["port", "=1", "engine.=1"])
def test_a_set_that_sets_nothing_is_refused(place: Place, setting: str) -> None:
    assert place.refused("--set", setting) == [f"--set: '{setting}' is given where NAME=VALUE is needed"]


def test_a_section_set_as_a_whole_and_in_part_is_refused(place: Place) -> None:
    assert place.refused("--set", "engine=1", "--set", "engine.seed=1") == [
        "--set: engine: it is given as a whole and in part"
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "--rank: 2 hosts are given: say which of them this is, 0 to 1"),
        (("--rank", "2"), "--rank: 2 is given where hosts has 2; 0 is the first"),
    ],
)
def test_a_host_of_several_must_say_which_it_is(place: Place, options: tuple[str, ...], line: str) -> None:
    place.write('tensor_parallel_size = 2\nhosts = ["a", "b"]\n')
    assert place.refused(*options) == [line]


def test_a_drafter_that_vllm_would_load_in_vain_is_refused(place: Place) -> None:
    (place.drafter / "model.safetensors").unlink()
    assert place.refused(config="C-shadow") == [
        "site.toml: drafter: C-shadow drafts on this host too, and drafter holds no weights"
    ]
    (place.drafter / "config.json").unlink()
    assert place.refused() == ["site.toml: drafter: drafter has no config.json"]


def problems(config: str, site: Path, *settings: str) -> list[str]:
    """What is wrong, nothing where it can be launched; any other exception is a fault."""
    try:
        render(read_launch(config, site, settings), 0)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)


def as_toml(value: Any) -> str:
    """Enough of TOML for what JSON can say."""
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(key)} = {as_toml(one)}" for key, one in value.items() if one is not None)
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(one) for one in value if one is not None) + "]"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower()


def quoted(text: str) -> str:
    escaped = "".join(
        letter if letter.isprintable() and letter not in '"\\' else f"\\U{ord(letter):08X}" for letter in text
    )
    return f'"{escaped}"'


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    name=st.sampled_from(
        ["port", "hosts", "remote", "tables", "engine", "environment", "speculative", "container", "worker"]
    )
    | words.filter(bool),
    value=values.filter(lambda value: value is not None),
)
def test_whatever_a_site_says_is_served_or_refused_by_file_and_field(
    place: Place, name: str, value: Any
) -> None:
    kept = [line for line in place.write().read_text().splitlines() if not line.startswith(f"{name} =")]
    place.site.write_text("\n".join([f"{quoted(name)} = {as_toml(value)}", *kept]))
    assert all(one.startswith(str(place.site)) for one in problems("C-capacity", place.site))


@given(text=st.text(max_size=60))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_after_set_is_a_value_or_one_problem(place: Place, text: str) -> None:
    assert all(one.startswith("--set: ") for one in problems("A-local", place.site, text))


def test_what_a_message_repeats_of_the_input_has_a_bound(place: Place) -> None:
    (line,) = place.refused("--set", "port=" + "9" * 1000)
    assert len(line) < 200


def test_a_site_that_is_a_folder_is_refused(place: Place, tmp_path: Path) -> None:
    place.site.unlink()
    place.site.mkdir()
    assert place.invoke("--print").exit_code == 2


@pytest.mark.parametrize("name", ["hosts", "command"])
def test_a_list_of_a_file_is_not_taken_for_one_word_of_set(place: Place, name: str) -> None:
    lines = place.refused("--set", f'{name}=["a", "b"]')
    assert lines == [f'--set: {name}: words with commas between are needed, not \'["a", "b"]\'']
