"""The checks of an engine's environment.  Pure."""

from ofl.doctor.findings import Check, Facts, Verdict, failed, passed, skipped

from spark_overlay.launch import PLUGIN_NAME, PLUGINS
from spark_overlay.probe import EXIT_OK, EXIT_REFUSED
from spark_overlay.settings import NOT_BUILT_YET, PREFIX

MODULE_LOADINGS = ("DEFAULT", "LAZY", "EAGER")

SET_ENDPOINT = f"export {PREFIX}=rdma://WORKER:PORT?bind=ADDRESS"
RENAME = "unset {name}, and export {instead} if that is meant"
REMOVE = "unset {name}"
SET_RIGHT = "export {setting}=VALUE: {rule}"
SET_IDENTITY = "export {setting}={value}"
ALLOW_PLUGIN = f"export {PLUGINS}={{names}}, or unset {PLUGINS}"
INSTALL_PLUGIN = "pip install --force-reinstall --no-deps spark-overlay in the engine's own environment"
SUPPORTED_ENGINE = (
    "run one of the supported versions ({supported}): pip install vllm=={newest}, or another image"
)
INSTALL_ENGINE = "run doctor with the Python of the engine's environment, or in its container"
STOCK_FILE = (
    "pip install --force-reinstall --no-deps vllm=={version}, or spark-overlay overlay build for this image"
)
ONE_BINDING = (
    "take the mount of the file overlay away, or pip uninstall spark-overlay's plugin from this image"
)
SPECULATE = (
    'add to the command: --speculative-config \'{{"method": "dspark", "model": "DRAFTER", '
    '"num_speculative_tokens": N}}\''
)
EAGER = "export CUDA_MODULE_LOADING=EAGER"
KNOWN_LOADING = "unset CUDA_MODULE_LOADING, or set one of DEFAULT, LAZY, EAGER"
WRITABLE = "mkdir -p {folder} and chown {user} {folder}, or export {setting}=a path that can be written"
OTHER_DRAFTER = "let {endpoint} serve the drafter of {setting}, or set what x86-worker identity says: {said}"
START_WORKER = "x86-worker serve --listen {endpoint} on the worker's host"
SAME_KEY = (
    f"copy one key file to both hosts: {PREFIX}_KEY_FILE=FILE here, and there x86-worker serve --key-file FILE, "
    "each the path of its copy"
)

_UNUSABLE = "the settings cannot be used: see settings-given, settings"


def settings_given(facts: Facts) -> Verdict:
    """Something asks for the remote drafter."""
    if not facts["settings"]["given"]:
        if not facts["engine"]["remote"]:
            return skipped("this config does not draft remotely")
        return failed(f"{PREFIX} is not set: the engine would be stock", SET_ENDPOINT)
    return passed(f"{PREFIX}={facts['settings']['values'].get(PREFIX, '')}")


def setting_names(facts: Facts) -> Verdict:
    """No name is misspelt."""
    unknown = facts["settings"]["unknown"]
    if not unknown:
        return passed(f"{len(facts['settings']['values'])} settings, all known")
    name, sentence = next(iter(unknown.items()))
    _, found, near = sentence.partition("did you mean ")
    seen = " ".join(unknown.values())
    if name in NOT_BUILT_YET or not found:
        return failed(seen, REMOVE, name=name)
    return failed(seen, RENAME, name=name, instead=near.removesuffix("?"))


def settings(facts: Facts) -> Verdict:
    """Every value can be used."""
    if not facts["settings"]["given"]:
        return skipped(f"{PREFIX} is not set: see settings-given")
    problems = facts["settings"]["problems"]
    if problems:
        setting, _, rule = problems[0].partition(": ")
        return failed(" ".join(problems), SET_RIGHT, setting=setting, rule=rule)
    return passed("every value can be used")


def identity(facts: Facts) -> Verdict:
    """The settings say what identity.json says."""
    said = facts["engine"]["identity_file"]
    if said is None:
        return skipped("no identity.json is given (--identity-file)")
    values = facts["settings"]["values"]
    for name, value in said.items():
        setting = f"{PREFIX}_{name.upper()}"
        if values.get(setting) != value:
            seen = f"{setting} is {values.get(setting, 'unset')}, and identity.json says {value}"
            return failed(seen, SET_IDENTITY, setting=setting, value=value)
    return passed("both digests are those of identity.json")


def plugin_allowlist(facts: Facts) -> Verdict:
    """The engine may load our plugin."""
    allowed = facts["engine"]["plugins"]
    if _overlaid(facts):
        return skipped("the file overlay binds the drafter, and no plugin is needed")
    if allowed is None:
        return passed(f"{PLUGINS} is unset: every plugin is loaded")
    names = allowed.split(",")
    if PLUGIN_NAME not in names:
        wanted = ",".join([*filter(None, names), PLUGIN_NAME])
        return failed(f"{PLUGINS} is {allowed!r} and leaves out {PLUGIN_NAME}", ALLOW_PLUGIN, names=wanted)
    return passed(f"{PLUGINS} is {allowed!r}")


def plugin_entry_point(facts: Facts) -> Verdict:
    """The engine finds our plugin, or the overlay takes its place."""
    seen = facts["engine"]["plugin_seen"]
    if _overlaid(facts):
        return passed("the file overlay takes the plugin's place")
    if not seen:
        return failed("no entry point of vllm.general_plugins is ours", INSTALL_PLUGIN)
    return passed(f"the entry point {PLUGIN_NAME} is there")


def engine_version(facts: Facts) -> Verdict:
    """A version that the seam knows."""
    engine = facts["engine"]
    if not engine["version"]:
        return failed("no vLLM is installed beside this command", INSTALL_ENGINE)
    if engine["bound_file"] is None:
        supported = ", ".join(engine["supported"])
        seen = f"vLLM {engine['version']} is not supported; supported: {supported}"
        return failed(seen, SUPPORTED_ENGINE, supported=supported, newest=engine["supported"][-1])
    return passed(f"vLLM {engine['version']}")


def engine_file(facts: Facts) -> Verdict:
    """The file that is bound is the release's own, or our overlay of it without the plugin beside it."""
    bound = facts["engine"]["bound_file"]
    if bound is None:
        return skipped("the engine is not supported: see engine-version")
    if bound["state"] == "other":
        return failed(bound["sentence"], STOCK_FILE, version=facts["engine"]["version"])
    if bound["state"] == "overlay" and facts["engine"]["plugin_seen"]:
        return failed(f"{bound['sentence']}, and the plugin is installed as well", ONE_BINDING)
    return passed(bound["sentence"])


def speculative_config(facts: Facts) -> Verdict:
    """The engine is told to draft with DSpark."""
    found = facts["engine"]["speculative"]
    if found is None:
        return skipped("no command of the engine is given (after --)")
    if found["fault"]:
        return failed(found["fault"], SPECULATE)
    if found["method"] != "dspark":
        return failed(f"the method is {found['method'] or 'not given'}, and must be dspark", SPECULATE)
    return passed("the method is dspark")


def module_loading(facts: Facts) -> Verdict:
    """Asynchronous rounds need every module loaded before they begin: a late load would wait for a parked stream."""
    value = facts["engine"]["module_loading"]
    if facts["engine"]["asynchronous"] and value != "EAGER":
        return failed(f"CUDA_MODULE_LOADING is {value or 'unset'}, and rounds are asynchronous", EAGER)
    if value and value not in MODULE_LOADINGS:
        return failed(f"CUDA_MODULE_LOADING is {value!r}, which CUDA does not know", KNOWN_LOADING)
    return passed(f"CUDA_MODULE_LOADING is {value or 'unset'}")


def written_files(facts: Facts) -> Verdict:
    """Stats, readiness and control can be written where they are to be."""
    files = facts["engine"]["files"]
    for one in files:
        if one["fault"]:
            folder = one["path"].rpartition("/")[0] or "."
            values = {"folder": folder, "user": "the engine's user", "setting": one["setting"]}
            return failed(f"{one['setting']}: {one['fault']}", WRITABLE, **values)
    if not files:
        return skipped("no file is set to be written")
    return passed(", ".join(one["path"] for one in files))


def worker(facts: Facts) -> Verdict:
    """It answers, and would serve this engine."""
    found = facts["engine"]["worker"]
    endpoint = facts["settings"]["values"].get(PREFIX, "")
    if facts["engine"]["rank"] > 0:
        return skipped("rank 0 alone talks to the worker (--rank)")
    if found is None:
        return skipped(
            _UNUSABLE if facts["settings"]["problems"] or not endpoint else "not asked (--offline)"
        )
    if facts["endpoint"] and (facts["endpoint"].get("connect") or facts["endpoint"].get("error")):
        return skipped("no connection comes about: see reachable, route")
    if found["exit_status"] == EXIT_OK:
        named, ping = found.get("worker_name", "the worker"), found.get("ping_us")
        return passed(f"{named} at {endpoint} would serve this engine; ping {ping} us")
    if found["exit_status"] == EXIT_REFUSED and found.get("hello_status") == "MISMATCH":
        for name in ("identity", "markov_identity"):
            setting, said = f"{PREFIX}_{name.upper()}", found.get(f"worker_{name}")
            if said is not None and facts["identities"].get(name) != said:
                values = {"endpoint": endpoint, "setting": setting, "said": f"export {setting}={said}"}
                return failed(f"{endpoint}: {found['error']}", OTHER_DRAFTER, **values)
    error = str(found["error"])
    seen = error if error.startswith(endpoint) else f"{endpoint}: {error}"
    if "proof" in error:
        return failed(seen, SAME_KEY)
    return failed(seen, START_WORKER, endpoint=endpoint.partition("?")[0])


def _overlaid(facts: Facts) -> bool:
    bound = facts["engine"]["bound_file"]
    return bound is not None and bound["state"] == "overlay"


ENGINE_CHECKS = (
    Check("settings-given", f"`{PREFIX}` asks for the remote drafter", (SET_ENDPOINT,), settings_given),
    Check("setting-names", "no setting's name is unknown", (RENAME, REMOVE), setting_names),
    Check("settings", "every setting's value can be used; both identities are given", (SET_RIGHT,), settings),
    Check(
        "identity",
        "both identities are those of `identity.json` (`--identity-file`)",
        (SET_IDENTITY,),
        identity,
    ),
    Check(
        "plugin-allowlist", f"`{PLUGINS}` does not leave the overlay out", (ALLOW_PLUGIN,), plugin_allowlist
    ),
    Check(
        "plugin-entry-point",
        "the engine finds the plugin, or a file overlay takes its place",
        (INSTALL_PLUGIN,),
        plugin_entry_point,
    ),
    Check(
        "engine-version",
        "vLLM is installed beside the command, in a supported version",
        (INSTALL_ENGINE, SUPPORTED_ENGINE),
        engine_version,
    ),
    Check(
        "engine-file",
        "the file that is bound is the release's own, or our overlay with no plugin beside it",
        (STOCK_FILE, ONE_BINDING),
        engine_file,
    ),
    Check(
        "speculative-config",
        "the engine's command (after `--`) drafts with method `dspark`",
        (SPECULATE,),
        speculative_config,
    ),
    Check(
        "module-loading",
        "`CUDA_MODULE_LOADING` is one that CUDA knows, and `EAGER` where rounds are asynchronous",
        (EAGER, KNOWN_LOADING),
        module_loading,
    ),
    Check("written-files", "files that are set can be written", (WRITABLE,), written_files),
    Check(
        "worker",
        "the worker answers within the time, and would serve this engine (not with `--offline`)",
        (OTHER_DRAFTER, SAME_KEY, START_WORKER),
        worker,
    ),
)
"""In the order in which they are shown."""
