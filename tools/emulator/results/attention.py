"""Attention of the device's two fused kernels, by the CPU's flash attention.

The CPU keeps the logarithm of the sums for each query, the memory-efficient kernel pads these to a multiple of 32.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_PAD = 32


def efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sums_wanted: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    generator: object = None,
) -> tuple[Any, ...]:
    """Raises ValueError for dropout."""
    output, sums = _forward(query, key, value, bias, dropout_p, is_causal, scale)
    return output, _padded(sums) if sums_wanted else None, None, None


def efficient_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    output: Tensor,
    sums: Tensor,
    _seed: Tensor,
    _offset: Tensor,
    dropout_p: float,
    wanted: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
    generator: object = None,
) -> tuple[Any, ...]:
    """Raises ValueError for dropout, and where a gradient of the bias is wanted, which the CPU does not compute."""
    if wanted[3]:
        raise ValueError("attention with a gradient of its bias: choose the backend MATH")
    found = _backward(grad, query, key, value, bias, output, sums[..., : query.size(2)], dropout_p, is_causal, scale)
    return *found, None


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    _debug_mask: bool = False,
    *,
    scale: float | None = None,
    generator: object = None,
) -> tuple[Any, ...]:
    """Raises ValueError for dropout."""
    output, sums = _forward(query, key, value, None, dropout_p, is_causal, scale)
    return output, sums, *[None] * 7


def flash_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    sums: Tensor,
    _starts_q: object,
    _starts_k: object,
    _longest_q: object,
    _longest_k: object,
    dropout_p: float,
    is_causal: bool,
    _seed: Tensor,
    _offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Raises ValueError for dropout."""
    return _backward(grad, query, key, value, None, output, sums, dropout_p, is_causal, scale)


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    _refuse_dropout(dropout_p)
    call = aten._scaled_dot_product_flash_attention_for_cpu
    output, sums = call(query, key, value, 0.0, is_causal, attn_mask=bias, scale=scale)
    return output, sums


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    output: Tensor,
    sums: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, ...]:
    _refuse_dropout(dropout_p)
    call = aten._scaled_dot_product_flash_attention_for_cpu_backward
    found: tuple[Tensor, ...] = call(grad, query, key, value, output, sums, 0.0, is_causal, attn_mask=bias, scale=scale)
    return found


def _refuse_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise ValueError("attention with dropout: choose the backend MATH")


def _padded(sums: Tensor) -> Tensor:
    queries = sums.size(-1)
    made = sums.new_full((*sums.shape[:-1], math.ceil(queries / _PAD) * _PAD), math.inf)
    made[..., :queries] = sums
    return made
