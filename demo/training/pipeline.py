"""The training from tokens to weights: target, its texts, drafter, confidence, acceptance.

Owns the order of the stages and the record.  Writes what it has after every stage, so that a run that is cut
short leaves its finished stages behind.  Must not choose among runs: that is a person's decision.
"""

import json
import math
import platform
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from demo.training.acceptance import accepted_everywhere, calibration, rounds_of
from demo.training.confidence import refit_confidence
from demo.training.corpus import Tokens, load_tokens, spans
from demo.training.counting import figures, fresh_rounds, summary
from demo.training.drafter import Drafter
from demo.training.layers import rotations, round_to_bf16
from demo.training.losses import drafter_loss, next_token_loss
from demo.training.optim import run_fit
from demo.training.settings import Settings
from demo.training.target import Generator, Target
from demo.training.texts import CorpusRows, DrafterBatches, own_texts

_HELD_OUT_SEED = 7
_CONFIDENCE_SEED = 11
_DEEP_NEW_TOKENS = 832  # texts for acceptance by depth
_DEEP_EDGES = (64, 128, 256, 384, 512, 640, 768, 896)


class Training:
    """One run.  The device holds the corpus; `folder` gets weights and record.json."""

    def __init__(self, settings: Settings, data: Path, folder: Path, device: str) -> None:
        self.settings, self.folder, self.device = settings, folder, device
        self.tokens: Tokens = load_tokens(data)
        torch.manual_seed(settings.seed)
        # cuDNN builds a plan for every new length of a growing cache, which is most of the time it takes.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._random = np.random.default_rng(settings.seed)
        self._corpus = CorpusRows(self.tokens.train, self._random, device)
        self._rotation = rotations(settings.context + 1, settings.target.head_dim, device)
        self.target = Target(settings.target).to(device)
        self.record: dict[str, Any] = {
            "settings": settings.as_record(),
            "corpus": self.tokens.facts,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "seconds": {},
        }
        self._started = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, start_target: Path | None = None, fit_seconds_max: float | None = None) -> dict[str, Any]:
        """All stages; start_target: a target's weights to begin with.  Returns the record."""
        if start_target is None:
            self._fit_target(fit_seconds_max)
        else:
            self.target.load_state_dict(load_file(start_target))
            self.record["start_target"] = start_target.name
        round_to_bf16(self.target)
        self.target.requires_grad_(False)
        self.record["target"] = {"parameters": _count(self.target), **self._held_out_loss()}
        print("target", self.record["target"], flush=True)
        self._keep("target", self.target)
        drafter = self._fit_drafter(fit_seconds_max)
        round_to_bf16(drafter)
        drafter.requires_grad_(False)
        self.record["confidence"] = self._refit(drafter)
        self.record["drafter"] = {"parameters": _count(drafter)}
        self._keep("drafter", drafter)
        self.record["acceptance"] = self._measure(drafter)
        print("acceptance", json.dumps(self.record["acceptance"]), flush=True)
        self._keep("drafter", drafter)
        return self.record

    def _fit_target(self, seconds_max: float | None) -> None:
        fit = self.settings.target_fit
        self.record["target_fit"] = run_fit(
            "target",
            self.target,
            fit,
            next_token_loss(self.target, self._rotation),
            lambda: (self._corpus.draw(fit.rows, self.settings.context + 1),),
            self.device,
            seconds_max,
        )

    def _fit_drafter(self, seconds_max: float | None) -> Drafter:
        settings = self.settings
        own = own_texts(self.target, self._rotation, self._corpus, settings, self._random, self.device)
        self.record["own_texts"] = {
            "rows": len(own.texts),
            "repeated_share": round(own.repeats.float().mean().item(), 3),
        }
        print("own texts", self.record["own_texts"], f"{time.monotonic() - self._started:.0f} s", flush=True)
        drafter = Drafter(settings.drafter, settings.target).to(self.device)
        batches = DrafterBatches(own, self._corpus, settings, self._random)
        self.record["drafter_fit"] = run_fit(
            "drafter",
            drafter,
            settings.drafter_fit,
            drafter_loss(drafter, self.target, self._rotation, settings),
            batches.draw,
            self.device,
            seconds_max,
        )
        return drafter

    def _refit(self, drafter: Drafter) -> dict[str, Any]:
        settings = self.settings
        first = settings.eval_prompt_tokens
        texts = self._greedy(
            self.tokens.train, settings.confidence_rows, settings.confidence_new_tokens, _CONFIDENCE_SEED
        )
        return refit_confidence(drafter, self.target, self._rotation, texts, first)

    def _greedy(self, tokens: Any, rows: int, new_tokens: int, seed: int) -> Tensor:
        """Greedy texts after seeded prompts from `tokens`, int64 [rows, prompt + new_tokens], in float32."""
        prompts = torch.from_numpy(spans(tokens, rows, self.settings.eval_prompt_tokens, seed))
        return Generator(self.target, self._rotation).continue_texts(prompts.to(self.device), new_tokens)

    def _measure(self, drafter: Drafter) -> dict[str, Any]:
        settings = self.settings
        first = settings.eval_prompt_tokens
        result: dict[str, Any] = {}
        for name, new_tokens in (("short", settings.eval_new_tokens), ("deep", _DEEP_NEW_TOKENS)):
            texts = self._greedy(self.tokens.held_out, settings.eval_rows, new_tokens, _HELD_OUT_SEED)
            accepted, confidence = accepted_everywhere(drafter, self.target, self._rotation, texts, first)
            rounds = rounds_of(accepted, first)
            result[name] = summary(rounds, texts.cpu().numpy(), first)
            result[name]["calibration"] = calibration(accepted, confidence)
            if name == "deep":
                fresh = fresh_rounds(rounds, texts.cpu().numpy())
                result["fresh_by_depth"] = [
                    {"from": low, "to": high} | figures([item for item in fresh if low <= item.anchor < high])
                    for low, high in pairwise(_DEEP_EDGES)
                ]
        return result

    @torch.no_grad()
    def _held_out_loss(self) -> dict[str, float]:
        """Nats a token and bits a byte on held-out text, in rows of the full context."""
        context, held_out = self.settings.context, self.tokens.held_out
        loss = next_token_loss(self.target, self._rotation)
        rows = min((len(held_out) - 1) // context, 64)
        ids = np.stack([held_out[row * context : (row + 1) * context + 1] for row in range(rows)])
        parts = torch.from_numpy(ids.astype(np.int64)).to(self.device).split(8)
        nats = sum(float(loss(part)[0]) * len(part) for part in parts) / rows
        facts = self.tokens.facts
        bytes_per_token = facts["held_out_text_bytes"] / facts["held_out_tokens"]
        return {
            "nats_per_token": round(nats, 4),
            "bits_per_byte": round(nats / math.log(2) / bytes_per_token, 4),
        }

    def _keep(self, name: str, module: nn.Module) -> None:
        self.record["seconds"][name] = round(time.monotonic() - self._started, 1)
        weights = {
            key: value.detach().to("cpu", torch.bfloat16).contiguous()
            for key, value in module.state_dict().items()
        }
        save_file(weights, self.folder / f"{name}.safetensors", metadata={"format": "pt"})
        (self.folder / "record.json").write_text(json.dumps(self.record, indent=1) + "\n")


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
