"""A model from a function that builds it, and the simplest training loop for it."""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carpool.estimate.base import CannotEstimate, Subject

#: What to do about a model that raises an error.
BY_HAND = "make it run on ordinary tensors first"
LOSSES = ("auto", "cross_entropy", "mse", "mean")


def build(subject: Subject) -> nn.Module:
    """Call the factory, and return its model.  Raises CannotEstimate."""
    place, _, name = subject.model.rpartition(":")
    if not place or not name:
        raise CannotEstimate(f"--model {subject.model}: a module and a function are needed", "as in nets.py:resnet50")
    try:
        model = _look_up(place, name, subject.directory)()
    except CannotEstimate:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of the user's code
        raise CannotEstimate(f"--model {subject.model}: {type(error).__name__}: {error}", BY_HAND) from None
    if not isinstance(model, nn.Module):
        raise CannotEstimate(f"{name}() gives a {type(model).__name__}, not a torch.nn.Module")
    return model


def _look_up(place: str, name: str, directory: str) -> Callable[[], Any]:
    sys.path.insert(0, directory or ".")
    if place.endswith(".py"):
        path = Path(directory or ".") / place
        sys.path.insert(0, str(path.parent))
        names: Mapping[str, Any] = runpy.run_path(str(path))
    else:
        names = vars(importlib.import_module(place))
    if not callable(names.get(name)):
        raise CannotEstimate(f"there is no function {name} in {place}", f"it has {_offers(names)}")
    found: Callable[[], Any] = names[name]
    return found


def _offers(names: Mapping[str, Any]) -> str:
    mine = sorted(name for name, value in names.items() if callable(value) and not name.startswith("_"))
    return ", ".join(mine[:12]) or "none"


def play_model(subject: Subject) -> Callable[[], None]:
    """Return an endless training loop of the model.  Raises CannotEstimate for missing facts, before anything runs."""
    batch, optimizer_of = checked(subject), optimizer_maker(subject.optimizer)

    def play() -> None:
        model = build(subject)
        optimizer = optimizer_of(model)
        while True:
            inputs = example(model, batch, subject.input_shapes)
            optimizer.zero_grad()
            loss_of(model(*inputs), subject.loss).backward()
            optimizer.step()

    return play


def checked(subject: Subject) -> int:
    """Check the facts about a model's input and loss, and return the batch size.  Raises CannotEstimate."""
    if not subject.batch_size or not subject.input_shapes:
        raise CannotEstimate("the model's input is not known", "give --batch-size 32 and --input 3x224x224")
    if (subject.loss or "auto") not in LOSSES:
        raise CannotEstimate(f"there is no loss {subject.loss}", f"one of: {', '.join(LOSSES)}")
    return subject.batch_size


def optimizer_maker(text: str) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """Parse ``sgd,lr=0.1,momentum=0.9``: a class of torch.optim, in any case, and arguments.  Raises CannotEstimate."""
    name, *settings = (text or "adam").split(",")
    classes = {key.lower(): value for key, value in vars(torch.optim).items() if isinstance(value, type)}
    if name.lower() not in classes:
        raise CannotEstimate(f"there is no optimizer {name}", f"one of: {', '.join(sorted(classes))}")
    try:
        options = {key: ast.literal_eval(value) for key, value in (setting.split("=") for setting in settings)}
    except (ValueError, SyntaxError):
        raise CannotEstimate(
            f"--optimizer {text}: the settings are not name=number", "as in sgd,momentum=0.9"
        ) from None
    if name.lower() == "sgd":
        options.setdefault("lr", 0.01)  # older versions have no default
    return lambda model: classes[name.lower()](model.parameters(), **options)


def example(model: nn.Module, batch: int, shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    """Return inputs of these shapes: tokens for a model that starts with an embedding, else numbers."""
    with_weights = (module for module in model.modules() if any(True for _ in module.parameters(recurse=False)))
    if isinstance(next(with_weights, None), nn.Embedding):
        return [torch.zeros((batch, *shape), dtype=torch.int64) for shape in shapes]
    return [torch.zeros((batch, *shape)) for shape in shapes]


def loss_of(output: Any, kind: str) -> torch.Tensor:
    """Return a loss that fits the output: classes in the last dimension of two or three, else a squared error."""
    if getattr(output, "loss", None) is not None:
        result: torch.Tensor = output.loss
        return result
    scores = first_tensor(output)
    if kind == "mean":
        return scores.mean()
    if kind == "cross_entropy" or (kind in ("", "auto") and scores.dim() in (2, 3)):
        flat = scores.flatten(0, -2)
        return nn.functional.cross_entropy(flat, torch.zeros(len(flat), dtype=torch.int64))
    return nn.functional.mse_loss(scores, torch.zeros_like(scores))


def first_tensor(output: Any) -> torch.Tensor:
    """Return the first tensor of a model's output, however deep in mappings and sequences."""
    while not isinstance(output, torch.Tensor):
        values = list(output.values()) if isinstance(output, Mapping) else list(output)
        output = values[0]
    return output
