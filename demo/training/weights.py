"""Loads the shipped pair into the training's own models, frozen and in float32."""

from pathlib import Path

from safetensors.torch import load_file

from demo.training.drafter import Drafter
from demo.training.settings import Settings
from demo.training.target import Target


def load_pair(pair: Path, settings: Settings) -> tuple[Target, Drafter]:
    """Target and drafter from `pair`; raises what torch raises when names or shapes differ from the settings."""
    target, drafter = Target(settings.target), Drafter(settings.drafter, settings.target)
    target.load_state_dict(load_file(pair / "target" / "model.safetensors"))
    drafter.load_state_dict(load_file(pair / "drafter" / "model.safetensors"))
    return target.requires_grad_(False), drafter.requires_grad_(False)
