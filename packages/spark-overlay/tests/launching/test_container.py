"""The container's command line comes from the same config and site, and the docs show what it renders."""

import json
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import launch_docs
import pytest
from launch_docs import DOCS, ROOT, parts
from launch_rig import Place
from ofl.documents import rewritten
from spark_overlay.launch_command import launch as command

FILE = ROOT / "examples/container/Containerfile"


def words(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", " "))


def mounts(text: str) -> dict[str, tuple[str, bool]]:
    """Where each source is mounted, and whether it may only be read."""
    found = {}
    line = words(text)
    for before, word in pairwise(line):
        if before == "--mount":
            given = dict(part.split("=", 1) for part in word.split(",") if "=" in part)
            found[given["source"]] = (given["target"], word.endswith(",readonly"))
    return found


@pytest.mark.parametrize("name", parts())
def test_the_docs_show_what_is_rendered(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == rewritten(text, parts()[name]), f"run: python {Path(launch_docs.__file__).name}"


def test_what_is_read_is_mounted_read_only_at_its_own_path_and_what_is_written_is_not(place: Place) -> None:
    place.write(
        '[remote]\nkey_file = "/etc/key"\nstats_file = "/run/stats/stats.json"\n'
        'control_file = "/run/stats/control.json"\n[tables]\nservers = "tcp://h:1"\n'
        'tables = "/srv/engram"\nkey_file = "/etc/key2"\n[container]\ncache = "/var/cache/x"\n'
    )
    own = place.config('extends = "base.toml"\n')
    base = place.config('extends = "C-capacity"\n', "base.toml")
    found = mounts(place.printed(config=str(own), form="container"))
    read = [
        *(str(path) for path in (place.site, own, base, place.identity, place.drafter)),
        *("/models/target", "/etc/key", "/etc/key2", "/srv/engram"),
    ]
    assert {name: place for name, place in found.items() if name in read} == {
        name: (name, True) for name in read
    }
    rest = {name: place for name, place in found.items() if name not in read}
    assert rest == {"/run/stats": ("/run/stats", False), "/var/cache/x": ("/cache", False)}


def test_inside_the_same_config_site_and_options_are_given(place: Place) -> None:
    options = ("--set", "port=8001", "--set", "container.name=x", "--rank", "0")
    line = words(place.printed(*options, "--", "--seed", "7 8", form="container"))
    inside = line[line.index("$ENGINE_IMAGE") + 1 :]
    assert inside == [
        *("--config", "C-capacity", "--site", str(place.site), "--set", "port=8001", "--rank", "0"),
        *("--", "--seed", "7 8"),
    ]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in inside[: inside.index("--")] if word.startswith("--")} <= known


def test_the_root_is_read_only_and_the_limits_are_lifted(place: Place) -> None:
    line = words(place.printed("--set", "container.shm_size=32g", form="container"))
    for flag in ("--read-only", "--init", "--rm", "--tmpfs"):
        assert flag in line
    for flag, value in (
        ("--network", "host"),
        ("--ulimit", "memlock=-1:-1"),
        ("--shm-size", "32g"),
        ("--security-opt", "no-new-privileges"),
        ("--env", "HOME=/cache"),
    ):
        assert line[line.index(flag) + 1] == value


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("", False),
        ('worker = "rdma://10.0.0.1:1?bind=10.0.0.2"\n', True),
        ('[tables]\nservers = "rdma://h:1"\ntables = "/t"\n', True),
        ('tensor_parallel_size = 2\nhosts = ["a", "b"]\n', True),
    ],
)
def test_the_rdma_devices_are_given_where_they_are_used(place: Place, more: str, wanted: bool) -> None:
    place.write(more)
    if more.startswith("worker"):
        text = place.site.read_text().replace('worker = "tcp://10.0.0.1:18620"\n', "")
        place.site.write_text(text)
    assert ("/dev/infiniband" in words(place.printed("--rank", "0", form="container"))) is wanted


@pytest.mark.parametrize(
    ("runtime", "gpus", "flags"),
    [
        ("docker", "all", ["--gpus", "all"]),
        ("docker", "0,1", ["--gpus", '"device=0,1"']),
        ("podman", "all", ["--device", "nvidia.com/gpu=all"]),
        ("podman", "0,1", ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"]),
    ],
)
def test_gpus_are_asked_for_as_each_runtime_wants_it(
    place: Place, runtime: str, gpus: str, flags: list[str]
) -> None:
    options = ("--set", f"container.runtime={runtime}", "--set", f"container.gpus={gpus}")
    line = words(place.printed(*options, form="container"))
    assert line[:2] == [runtime, "run"]
    assert shlex.join(flags) in shlex.join(line)


def test_an_image_without_our_packages_takes_them_from_a_folder(place: Place) -> None:
    text = place.printed("--set", "container.packages=/srv/ofl", form="container")
    line = words(text)
    assert mounts(text)["/srv/ofl"] == ("/srv/ofl", True)
    assert "PYTHONPATH=/srv/ofl" in line
    assert line[line.index("--entrypoint") + 1] == "python3"
    start = line.index("$ENGINE_IMAGE") + 1
    assert line[start : start + 3] == ["-c", "from spark_overlay.cli import main; main()", "launch"]


def test_nothing_of_this_host_is_looked_at(place: Place) -> None:
    place.identity.unlink()
    (place.drafter / "config.json").unlink()
    assert words(place.printed(form="container"))[0] == "docker"


def test_a_path_that_cannot_be_mounted_is_refused(place: Place) -> None:
    assert place.refused("--set", "target=./model", "--format", "container") == [
        "--set: target: an absolute path is needed to mount it, not './model'"
    ]


def test_a_model_of_a_hub_is_not_mounted(place: Place) -> None:
    text = place.printed("--set", "target=maker/model", form="container")
    assert "maker/model" not in json.dumps(mounts(text))


def test_the_example_containerfile_fetches_nothing_and_starts_the_launcher() -> None:
    text = FILE.read_text(encoding="utf-8")
    (install,) = [line for line in text.splitlines() if "pip install" in line]
    assert {"--no-index", "--find-links"} <= set(install.split())
    assert json.loads(text.rstrip().splitlines()[-1].removeprefix("ENTRYPOINT ")) == [
        "spark-overlay",
        "launch",
    ]
    assert [line for line in text.splitlines() if line.startswith("FROM")] == ["FROM ${ENGINE_BASE}"]
    assert "://" not in text


def test_the_plugins_that_the_example_looks_for_are_those_that_the_packages_bring() -> None:
    text = FILE.read_text(encoding="utf-8").replace("\\\n", " ")
    (check,) = [line for line in text.splitlines() if line.startswith("RUN python3 -c")]
    code = shlex.split(check.removeprefix("RUN "))[2]

    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, "without site-packages there are no plugins"
    assert done.stderr.startswith("plugins that vLLM would not find: {")
