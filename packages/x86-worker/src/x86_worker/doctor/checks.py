"""The checks of a worker's checkpoint and GPU.  Pure."""

from ofl.doctor.findings import Check, Facts, Verdict, failed, passed, skipped

GPU_SPARE_MIB = 1024
"""Beside the weights: the CUDA context, graphs and workspace."""

READABLE = "name the drafter's and the target's folders as vLLM loads them (--drafter, --target): {error}"
OTHER_FOLDER = "serve the folder that identity.json was made from, or make it anew: {command}"
INSTALL_TORCH = "pip install x86-worker[torch]"
INSTALL_DRIVER = "install the driver of the GPU, then nvidia-smi must list it: {error}"
OTHER_DEVICE = "--device cuda:N with one of {own}, or unset CUDA_VISIBLE_DEVICES"
FREE_GPU = "nvidia-smi shows who holds it: end that, so that {mib} MiB are free, or choose another --device"


def checkpoint(facts: Facts) -> Verdict:
    """The folders hold a drafter."""
    worker = facts["worker"]
    if worker["checkpoint"]["error"]:
        return failed(worker["checkpoint"]["error"], READABLE, error=worker["checkpoint"]["error"])
    mib = worker["checkpoint"]["tensor_bytes"] >> 20
    identity = facts["identities"].get("identity", "not digested (--no-digest)")
    return passed(f"{worker['drafter']}: {mib} MiB of tensors, identity {identity}")


def checkpoint_identity(facts: Facts) -> Verdict:
    """It is the drafter that engines are configured with."""
    said, found = facts["worker"]["identity_file"], facts["identities"]
    if said is None:
        return skipped("no identity.json is given (--identity-file)")
    if not found:
        return skipped("the weights were not digested: see checkpoint")
    for name, value in said.items():
        if found[name] != value:
            worker = facts["worker"]
            command = f"x86-worker identity --drafter {worker['drafter']} --target {worker['target']}"
            seen = f"{name} is {found[name]}, and identity.json says {value or 'nothing'}"
            return failed(seen, OTHER_FOLDER, command=command)
    return passed("both digests are those of identity.json")


def torch_installed(facts: Facts) -> Verdict:
    """A real drafter is computed with torch."""
    if not facts["worker"]["torch"]:
        return failed("torch is not installed", INSTALL_TORCH)
    return passed("torch is installed")


def gpu(facts: Facts) -> Verdict:
    """The device is there."""
    worker = facts["worker"]
    if worker["device"] == "cpu":
        return skipped("the device is cpu (--device)")
    if worker["gpus_error"]:
        return failed(worker["gpus_error"], INSTALL_DRIVER, error=worker["gpus_error"])
    found = _chosen(facts)
    if found is None:
        own = ", ".join(f"{one['index']} ({one['name']})" for one in worker["gpus"])
        return failed(f"{worker['device']} is none of the GPUs that can be used", OTHER_DEVICE, own=own)
    return passed(f"{worker['device']} is GPU {found['index']}, {found['name']}, driver {found['driver']}")


def gpu_memory(facts: Facts) -> Verdict:
    """The weights and what is needed beside them fit."""
    found = _chosen(facts)
    if found is None:
        return skipped("no GPU is to be used, or it is not there: see gpu")
    needed = (facts["worker"]["checkpoint"]["tensor_bytes"] >> 20) + GPU_SPARE_MIB
    seen = f"{found['free_mib']} of {found['total_mib']} MiB are free, and {needed} are needed"
    return passed(seen) if found["free_mib"] >= needed else failed(seen, FREE_GPU, mib=needed)


def _chosen(facts: Facts) -> dict[str, object] | None:
    worker = facts["worker"]
    return next((one for one in worker["gpus"] if one["index"] == worker["gpu_index"]), None)


WORKER_CHECKS = (
    Check("checkpoint", "the folders hold a drafter that can be served", (READABLE,), checkpoint),
    Check(
        "checkpoint-identity",
        "its digests are those of `identity.json` (`--identity-file`)",
        (OTHER_FOLDER,),
        checkpoint_identity,
    ),
    Check("torch-installed", "torch is installed", (INSTALL_TORCH,), torch_installed),
    Check("gpu", "the device is there", (INSTALL_DRIVER, OTHER_DEVICE), gpu),
    Check("gpu-memory", "the weights and 1 GiB beside them fit into what is free", (FREE_GPU,), gpu_memory),
)
"""In the order in which they are shown."""
