"""The progress of a rehearsed job: its first forward pass, its optimizer steps; and its features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from carpool.estimate.base import Features
from carpool.estimate.rehearsal.arenas import Arenas
from carpool.estimate.rehearsal.values import tensors_in

STEPS = 8  # the first step has no gradients before it, and gaps between blocks settle in some further steps


class Enough(BaseException):
    """Ends the script.  Not an `Exception`, because scripts catch these."""


class Watch:
    """Hooks of the same kind as in a job (`runtime.torch_hooks.hooks`).  ``enough(steps)``: whether to stop."""

    def __init__(self, arenas: Arenas, enough: Callable[[int], bool]) -> None:
        self._arenas, self._enough = arenas, enough
        self.steps = 0
        self._seen: dict[int, int] = {}  # optimizer: parameters that have been through a step
        self._known: dict[str, Any] = {}
        self._model: torch.nn.Module | None = None
        self._before = 0  # ephemeral bytes before the first forward pass
        self._handles = [
            modules.register_module_forward_pre_hook(self._forward),
            register_optimizer_step_pre_hook(self._step),
            register_optimizer_step_post_hook(self._stepped),
        ]

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    @property
    def features(self) -> Features:
        """The features seen so far; all zeros before the first forward pass."""
        counts = ("batch_size", "parameter_bytes", "buffer_bytes", "gradient_bytes", "optimizer_bytes", "input_bytes")
        numbers: dict[str, Any] = {name: self._known.get(name, 0) for name in (*counts, "activation_bytes")}
        rest: dict[str, Any] = {name: self._known[name] for name in ("layers", "family") if name in self._known}
        peaks: dict[str, Any] = {name: self._known.get(name) for name in ("peak_forward_bytes", "peak_backward_bytes")}
        return Features(**numbers, **peaks, **rest)

    def _forward(self, model: torch.nn.Module, inputs: Any) -> None:
        if self._model is not None:
            return
        self._model = model
        self._arenas.to_persistent = False
        self._arenas.watch_peak()
        given = tensors_in(inputs)
        self._known.update(
            batch_size=given[0].shape[0] if given and given[0].dim() else 0,
            input_bytes=sum(map(_bytes, given)),
            parameter_bytes=sum(map(_bytes, model.parameters())),
            buffer_bytes=sum(map(_bytes, model.buffers())),
            layers=dict(Counter(type(m).__name__ for m in model.modules() if not list(m.children()))),
            family=type(model).__name__,
        )
        self._handles.append(model.register_forward_hook(self._forward_done))

    def _forward_done(self, *_: Any) -> None:
        if "activation_bytes" not in self._known:
            self._known.update(activation_bytes=self._arenas.live, peak_forward_bytes=self._arenas.live_peak)

    def _step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._known.setdefault("peak_backward_bytes", self._arenas.live_peak)
        self._known["gradient_bytes"] = sum(_bytes(p.grad) for p in parameters if p.grad is not None)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        self._arenas.to_persistent = closure is None and len(parameters) > self._seen.get(id(optimizer), 0)
        self._seen[id(optimizer)] = len(parameters)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._arenas.to_persistent = False
        self.steps += 1
        self._known["optimizer_bytes"] = sum(map(_bytes, tensors_in(list(optimizer.state.values()))))
        self._known.setdefault("parameter_bytes", sum(_bytes(p) for g in optimizer.param_groups for p in g["params"]))
        if self._enough(self.steps):
            raise Enough


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
