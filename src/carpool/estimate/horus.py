"""The analytic estimate of Horus: a sum over a model's layers, before anything has run.

Yeung, Borowiec, Yang, Friday, Harper, Garraghan: "Horus: Interference-Aware and Prediction-Based Scheduling in Deep
Learning Systems", IEEE TPDS 33(1), 2022; CARMA estimates with the same sum: weights, their gradients, the optimizer's
state, and the layers' outputs for a whole batch.  The layers are walked on PyTorch's meta device, which has shapes
and no bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from carpool.estimate.base import CannotEstimate, Features, Prediction, Subject, need_torch

if TYPE_CHECKING:
    import torch

CONTEXT_BYTES = 512 << 20  # a CUDA context with its libraries, about
#: How much state an optimizer keeps, in copies of the weights.
_COPIES = {
    "sgd": 0,
    "adagrad": 1,
    "rmsprop": 1,
    "adam": 2,
    "adamw": 2,
    "nadam": 2,
    "radam": 2,
    "adamax": 2,
}
_RANGE = (500_000, 1_500_000)  # of the total, ppm: the sum ignores memory inside layers, and memory that layers share


class Horus:
    """The estimator ``horus``: the formula's sum as P + E, with a range of 0.5 to 1.5 times the sum."""

    name = "horus"

    def estimate(self, subject: Subject) -> Prediction:
        """Return the formula's sum.  Raises CannotEstimate."""
        features = walk(subject) if subject.model or subject.features is None else subject.features
        persistent = features.parameter_bytes + features.buffer_bytes + features.optimizer_bytes
        persistent += CONTEXT_BYTES if subject.device == "cuda" else 0
        ephemeral = features.gradient_bytes + features.activation_bytes + features.input_bytes
        low, high = ((persistent + ephemeral) * ppm // 1_000_000 for ppm in _RANGE)
        how = "a sum over the layers: weights, gradients, optimizer state, activations of a batch"
        return Prediction(persistent, ephemeral, low, high, self.name, how)


def walk(subject: Subject) -> Features:
    """Run one forward pass on the meta device, and return the facts seen.  Raises CannotEstimate."""
    if not subject.model:
        raise CannotEstimate(
            "the model is not known: the rehearsal of the script ended before there was one",
            "give --model, --batch-size and --input",
        )
    need_torch()
    import torch

    from carpool.estimate.rehearsal import factory

    batch = factory.checked(subject)
    with torch.device("meta"):
        model = factory.build(subject)
        inputs = factory.example(model, batch, subject.input_shapes)
        outputs = _Outputs(model)
        try:
            model(*inputs)
        except Exception as error:  # noqa: BLE001 - any error of the user's code
            text = f"the model does not run on the meta device: {type(error).__name__}: {error}"
            raise CannotEstimate(text, factory.BY_HAND) from None
    weights = sum(map(_bytes, model.parameters()))
    return Features(
        batch_size=batch,
        parameter_bytes=weights,
        buffer_bytes=sum(map(_bytes, model.buffers())),
        gradient_bytes=sum(_bytes(p) for p in model.parameters() if p.requires_grad),
        optimizer_bytes=weights * _copies(subject.optimizer),
        activation_bytes=outputs.bytes,
        input_bytes=sum(map(_bytes, inputs)),
        layers=dict(Counter(type(m).__name__ for m in model.modules() if not list(m.children()))),
        family=type(model).__name__,
    )


def _copies(optimizer: str) -> int:
    name, _, settings = (optimizer or "adam").lower().partition(",")
    if name not in _COPIES:
        raise CannotEstimate(
            f"how much state {name} keeps is not in the formula", f"it knows {', '.join(sorted(_COPIES))}"
        )
    return _COPIES[name] + ("momentum=" in settings and name in ("sgd", "rmsprop"))


class _Outputs:
    """Counts the bytes of the layers' outputs; a layer that runs several times counts each time."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.bytes = 0
        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(self._count)

    def _count(self, _module: Any, _inputs: Any, output: Any) -> None:
        from torch.utils._pytree import tree_leaves

        self.bytes += sum(_bytes(leaf) for leaf in tree_leaves(output) if hasattr(leaf, "element_size"))


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
