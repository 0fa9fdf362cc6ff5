"""What the CPU computes in the place of operators that it does not have.

Functions of the same arguments, on the CPU, by the operator's name.  A result of None stays as the device's kernel has
left it: what only the device's own kernels read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention import (
    efficient_attention,
    efficient_attention_backward,
    flash_attention,
    flash_attention_backward,
)
from .cells import gru_cell, gru_cell_backward, lstm_cell, lstm_cell_backward

aten = torch.ops.aten


def native_dropout(
    tensor: Tensor, p: float, train: bool | None, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """The kept elements are drawn as `bernoulli_` draws them."""
    if train is False or p == 0:
        return tensor.clone(), torch.ones_like(tensor, dtype=torch.bool)
    kept = torch.empty_like(tensor, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    return tensor * kept * (1 / (1 - p) if p < 1 else 0.0), kept


def depthwise_convolution(
    tensor: Tensor, weight: Tensor, _kernel: list[int], bias: Tensor | None, stride: Any, padding: Any, dilation: Any
) -> Tensor:
    """Of two or three dimensions: one group for each channel."""
    zeros = [0] * len(padding)
    return aten.convolution(tensor, weight, bias, stride, padding, dilation, False, zeros, tensor.size(1))


def log_sigmoid(tensor: Tensor) -> tuple[Tensor, None]:
    """The CPU's second result is none of a device's: a buffer for the backward pass."""
    result, _ = aten.log_sigmoid_forward(tensor)
    return result, None


def log_sigmoid_backward(gradient: Tensor, tensor: Tensor, _buffer: Tensor) -> Tensor:
    _, buffer = aten.log_sigmoid_forward(tensor)
    return aten.log_sigmoid_backward(gradient, tensor, buffer)


def normalized(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of (log-)softmax: a device computes single precision from half precision in one kernel, as autocast asks."""
    return lambda tensor, dim, half_to_float: call(tensor.float() if half_to_float else tensor, dim, False)


def normalized_backward(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda gradient, output, dim, kind: call(gradient, output, dim, gradient.dtype).to(kind)


def native_batch_norm(
    tensor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """When not training, a device returns the statistics that it has used, and the CPU none."""
    result, *used = aten.native_batch_norm(tensor, weight, bias, mean, variance, training, momentum, epsilon)
    if not training and mean is not None and variance is not None:
        used = [mean.clone(), (variance + epsilon).rsqrt()]
    return result, *used


SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "native_dropout": native_dropout,
    "native_batch_norm": native_batch_norm,
    "log_sigmoid_forward": log_sigmoid,
    "log_sigmoid_backward": log_sigmoid_backward,
    "_softmax": normalized(aten._softmax),
    "_log_softmax": normalized(aten._log_softmax),
    "_softmax_backward_data": normalized_backward(aten._softmax_backward_data),
    "_log_softmax_backward_data": normalized_backward(aten._log_softmax_backward_data),
    "_conv_depthwise2d": depthwise_convolution,
    "conv_depthwise3d": depthwise_convolution,
    "_scaled_dot_product_efficient_attention": efficient_attention,
    "_scaled_dot_product_efficient_attention_backward": efficient_attention_backward,
    "_scaled_dot_product_flash_attention": flash_attention,
    "_scaled_dot_product_flash_attention_backward": flash_attention_backward,
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}

#: Results' sizes depend on values, or the CUDA kernel looks at values meanwhile.
COMPUTED_FIRST = (
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_unique",
    "_unique2",
    "bincount",
    "equal",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
    "_fft_c2c",
    "_fft_c2r",
    "_fft_r2c",
    "_cholesky_solve_helper",
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "cholesky_inverse",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_inv_ex",
    "linalg_lstsq",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_qr",
    "linalg_solve_triangular",
    "triangular_solve",
)
