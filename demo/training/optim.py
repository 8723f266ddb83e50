"""The optimizer and the loop around it: Muon for matrices, Adam for the rest, one CUDA graph a step on a GPU.

Owns the update rule, the learning-rate schedule and the capture.  Must know nothing of what is trained.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from demo.training.settings import Fit

_MOMENTUM = 0.95
_NEWTON_SCHULZ_STEPS = 5
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # the quintic of the Muon optimizer (Jordan, 2024)
_WARM_UP_SHARE = 0.03
_FALL_SHARE = 0.8  # the rate falls linearly over this last share of the steps
_RATE_FLOOR = 0.02
_PACE_STEPS = (20, 60)  # between these the pace is measured, all of them at warm-up's rates
_EAGER_STEPS = 3  # before capture, so that all lazily made state exists


def mixed_precision(device: str) -> Any:
    """bf16 matrix work on a GPU, float32 on a CPU (few CPUs are faster in bf16)."""
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda", cache_enabled=False)


def rate_scale(step: int, steps: int) -> float:
    """The share of the full rate at `step` of `steps`: warm-up, flat, then linear to a small floor."""
    warm = min(1.0, (step + 1) / max(1.0, _WARM_UP_SHARE * steps))
    return warm * max(_RATE_FLOOR, min(1.0, (steps - step) / (_FALL_SHARE * steps)))


def _orthogonal(batch: Tensor) -> Tensor:
    """The nearest matrices with equal singular values, roughly, by Newton-Schulz; batch [count, out, in]."""
    x = batch.bfloat16() if batch.is_cuda else batch.float()
    wide = x.shape[1] > x.shape[2]
    x = x.mT if wide else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if wide else x).float()


class Optimizer:
    """Updates a module in place.  `scale` is a tensor, so that a captured step can be given a new rate."""

    def __init__(self, module: nn.Module, fit: Fit, device: str) -> None:
        self._fit = fit
        groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        self._rest: list[nn.Parameter] = []
        for name, weight in module.named_parameters():
            matrix = weight.dim() == 2 and ("layers." in name or name.startswith("fc."))
            if matrix:
                groups.setdefault(tuple(weight.shape), []).append(weight)
            else:
                self._rest.append(weight)
        self._groups = [
            (weights, torch.zeros(len(weights), *shape, device=device)) for shape, weights in groups.items()
        ]
        self._first = [torch.zeros_like(weight) for weight in self._rest]
        self._second = [torch.zeros_like(weight) for weight in self._rest]
        self.scale = torch.zeros((), device=device)
        self._count = torch.zeros((), device=device)

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients that the module's weights hold."""
        self._count += 1
        self._step_adam()
        for weights, momentum in self._groups:
            gradient = torch.stack([_gradient(weight) for weight in weights])
            momentum.lerp_(gradient, 1 - _MOMENTUM)
            update = _orthogonal(gradient.lerp(momentum, _MOMENTUM))
            update *= max(1.0, gradient.shape[1] / gradient.shape[2]) ** 0.5
            for index, weight in enumerate(weights):
                weight.mul_(1 - self.scale * self._fit.muon_rate * self._fit.decay)
                weight.sub_(self.scale * self._fit.muon_rate * update[index])

    def _step_adam(self) -> None:
        gradients = [_gradient(weight) for weight in self._rest]
        torch._foreach_lerp_(self._first, gradients, 0.1)
        torch._foreach_lerp_(self._second, torch._foreach_mul(gradients, gradients), 0.05)
        first_bias, second_bias = 1 - 0.9**self._count, 1 - 0.95**self._count
        for weight, first, second in zip(self._rest, self._first, self._second, strict=True):
            direction = (first / first_bias) / ((second / second_bias).sqrt() + 1e-8)
            weight.sub_(self.scale * self._fit.adam_rate * direction)
            if weight.dim() == 2:
                weight.mul_(1 - self.scale * self._fit.adam_rate * self._fit.decay)


def _gradient(weight: nn.Parameter) -> Tensor:
    if weight.grad is None:
        raise RuntimeError("a weight took no part in the loss")
    return weight.grad


Loss = Callable[..., tuple[Tensor, ...]]  # the loss first, then figures to report


class Stepper:
    """Runs loss, backward and update on fresh inputs; on a GPU from the fourth step on as one captured graph."""

    def __init__(self, module: nn.Module, optimizer: Optimizer, loss: Loss, device: str) -> None:
        self._module, self._optimizer, self._loss, self._device = module, optimizer, loss, device
        self._inputs: list[Tensor] = []
        self._graph: Any = None
        self._figures = torch.zeros(0)
        self._calls = 0

    def __call__(self, scale: float, *inputs: Tensor) -> Tensor:
        """One step at `scale` of the full rate; returns the loss's figures, float32 [figures]."""
        self._optimizer.scale.fill_(scale)
        self._calls += 1
        if self._inputs:
            for kept, new in zip(self._inputs, inputs, strict=True):
                kept.copy_(new)
        else:
            self._inputs = [new.clone() for new in inputs]
        if self._device != "cuda":
            return self._step()
        if self._calls <= _EAGER_STEPS:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                figures = self._step()
            torch.cuda.current_stream().wait_stream(stream)
            return figures
        if self._graph is None:
            self._module.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._figures = self._step()
        self._graph.replay()
        return self._figures.clone()

    def _step(self) -> Tensor:
        self._module.zero_grad(set_to_none=True)
        with mixed_precision(self._device):
            figures = self._loss(*self._inputs)
        figures[0].backward()
        self._optimizer.step()
        return torch.stack([figure.detach().float() for figure in figures])


def run_fit(
    name: str,
    module: nn.Module,
    fit: Fit,
    loss: Loss,
    batch: Callable[[], tuple[Tensor, ...]],
    device: str,
    seconds_max: float | None = None,
) -> dict[str, Any]:
    """Train `module` for `fit.steps` steps; returns the record: steps, seconds and smoothed figures.

    loss: batch -> figures, the loss first; batch: the next inputs, always of one shape.
    seconds_max: cut the steps early on, when their pace is known, to end within this time; the record then gives
    the steps taken, and a run with that many steps and no limit does the same work.
    """
    stepper = Stepper(module, Optimizer(module, fit, device), loss, device)
    started = time.monotonic()
    steps, step = fit.steps, 0
    smooth: Tensor | None = None
    log: list[dict[str, Any]] = []
    while step < steps:
        figures = stepper(rate_scale(step, steps), *batch())
        smooth = figures if smooth is None else smooth * 0.98 + figures * 0.02
        step += 1
        if seconds_max is not None and step in _PACE_STEPS:
            smooth.tolist()  # waits for the device
            now = time.monotonic()
            if step == _PACE_STEPS[0]:
                paced = now
            else:
                pace = (now - paced) / (_PACE_STEPS[1] - _PACE_STEPS[0])
                steps = min(steps, step + int((started + seconds_max - now) / pace))
        if step % max(1, steps // 8) == 0:
            log.append({"step": step, "figures": [round(value, 4) for value in smooth.tolist()]})
            print(name, log[-1], f"of {steps}, {time.monotonic() - started:.0f} s", flush=True)
    return {"steps": step, "seconds": round(time.monotonic() - started, 1), "log": log}
