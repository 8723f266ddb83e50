"""From the facts that engines stated to what a receipt says of a platform, and whether evidence is native."""

from collections.abc import Sequence

from ofl.contract.observation_v1 import Facts

from qualification.checks.model import Arm
from qualification.receipts.fields import ArmDeclaration, Setting
from qualification.receipts.statement import ArmRecord, Device, EvidenceClass, Platform

NATIVE_ENGINE = "vllm"
NATIVE_VERSIONS = ("0.26.0", "0.30.0", "0.32.0", "0.33.0")
"""vLLM releases that the overlay supports; a test compares them with its own list."""
DRAFTS_UNDER = {"remote": "capacity", "shadow": "shadow"}
"""The overlay's policy by an arm's way to draft; in any other nothing of the overlay drafts."""
NO_CUDA = ("", "cpu", "simulated")


class FactsError(ValueError):
    """Facts of one arm that contradict each other; the text names the field."""


def arm_declaration(arm: Arm) -> ArmDeclaration:
    """As records have it."""
    settings = tuple(Setting(name=name, value=arm.settings[name]) for name in sorted(arm.settings))
    return ArmDeclaration(name=arm.name, speculation=arm.speculation, ranks=arm.ranks, settings=settings)


def arm_record(arm: Arm, facts: Sequence[Facts]) -> ArmRecord:
    """An arm and what its engine starts stated, one `Facts` per rank and start, in any order; none: not started.

    Raises FactsError where starts differ, a rank is missing, or facts are of another arm.
    """
    declaration = arm_declaration(arm)
    starts = {one.start_id: [] for one in facts}  # type: dict[str, list[Facts]]
    for one in facts:
        if one.arm != arm.name:
            raise FactsError(f"arm: facts are of {one.arm!r}, not of {arm.name!r}")
        starts[one.start_id].append(one)
    platforms = {}
    for start_id, ranks in starts.items():
        ranks.sort(key=lambda one: one.rank)
        if [one.rank for one in ranks] != list(range(arm.ranks)):
            raise FactsError(
                f"rank: start {start_id} has facts of {[one.rank for one in ranks]}, not of each rank"
            )
        platforms[start_id] = _platform(start_id, ranks)
    if len(set(platforms.values())) > 1:
        raise FactsError(f"start_id: the starts {', '.join(sorted(platforms))} differ in what they state")
    platform = next(iter(platforms.values()), None)
    return ArmRecord(arm=declaration, starts=tuple(platforms), platform=platform)


def _platform(start_id: str, ranks: Sequence[Facts]) -> Platform:
    first = ranks[0]
    for field in ("engine", "engine_version", "overlay_version", "transport", "policy", "capabilities"):
        if any(getattr(one, field) != getattr(first, field) for one in ranks):
            raise FactsError(f"{field}: ranks of start {start_id} differ in it")
    return Platform(
        engine=first.engine,
        engine_version=first.engine_version,
        overlay_version=first.overlay_version,
        transport=first.transport,
        policy=first.policy,
        devices=tuple(
            Device(device=one.device, capability=one.device_capability, driver=one.driver) for one in ranks
        ),
        capabilities=tuple(sorted(first.capabilities)),
    )


def not_native(platform: Platform | None) -> str:
    """Why evidence of this platform is a rehearsal, naming the field; empty where it is native."""
    if platform is None:
        return "no engine started"
    if platform.engine != NATIVE_ENGINE:
        return f"engine is {platform.engine!r}, not {NATIVE_ENGINE!r}"
    if platform.engine_version.partition("+")[0] not in NATIVE_VERSIONS:
        return f"engine_version {platform.engine_version!r} is not supported"
    if platform.transport.startswith("simulated"):
        return f"transport is {platform.transport!r}"
    for rank, device in enumerate(platform.devices):
        if device.device in NO_CUDA or not device.capability or not device.driver:
            return f"device of rank {rank} is {device.device!r}, with no CUDA capability or driver"
    return ""


def evidence_class(*platforms: Platform | None) -> EvidenceClass:
    """Native where every platform is."""
    return EvidenceClass.REHEARSAL if any(map(not_native, platforms)) else EvidenceClass.NATIVE
