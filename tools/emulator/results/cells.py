"""Fused cells of recurrent networks, step by step as PyTorch computes them on the CPU.

The device's kernels keep the activated gates in a *workspace* for the backward pass, of a form of their own; what is
kept here is read by these functions only.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The next hidden state, the next cell, and the four gates."""
    gates = _biased(hidden, hidden_bias) + _biased(inputs, input_bias)
    enter, forget, new, leave = gates.chunk(4, 1)
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    after = (forget * cell).add_(enter * new)
    return leave * after.tanh(), after, torch.cat([enter, forget, new, leave], 1)


def lstm_cell_backward(
    grad_hidden: Tensor | None, grad_after: Tensor | None, cell: Tensor, after: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of the gates before their activation, of the cell, and of each bias."""
    enter, forget, new, leave = gates.chunk(4, 1)
    grad_hidden = torch.zeros_like(after) if grad_hidden is None else grad_hidden
    shape = after.tanh()
    grad_cell = grad_hidden * leave * (1 - shape * shape) + (0 if grad_after is None else grad_after)
    parts = [
        grad_cell * new * (1 - enter) * enter,
        grad_cell * cell * (1 - forget) * forget,
        grad_cell * enter * (1 - new * new),
        grad_hidden * shape * (1 - leave) * leave,
    ]
    grad_gates = torch.cat(parts, 1)
    return grad_gates, grad_cell * forget, grad_gates.sum(0) if has_bias else None


def gru_cell(
    inputs: Tensor, hidden: Tensor, state: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The next state, and what the backward pass needs: reset, input and new gates, the state, the hidden part."""
    from_input = _biased(inputs, input_bias).chunk(3, 1)
    from_state = _biased(hidden, hidden_bias).chunk(3, 1)
    reset = (from_state[0] + from_input[0]).sigmoid()
    update = (from_state[1] + from_input[1]).sigmoid()
    new = (from_input[2] + from_state[2] * reset).tanh()
    after = (state - new) * update + new
    return after, torch.cat([reset, update, new, state, from_state[2]], 1)


def gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Gradients of both inputs, of the state, and of both biases."""
    reset, update, new, state, part = workspace.chunk(5, 1)
    grad_update = grad * (state - new) * (1 - update) * update
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * part * (1 - reset) * reset
    inputs = torch.cat([grad_reset, grad_update, grad_new], 1)
    hidden = torch.cat([grad_reset, grad_update, grad_new * reset], 1)
    return inputs, hidden, grad * update, *((inputs.sum(0), hidden.sum(0)) if has_bias else (None, None))


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias
