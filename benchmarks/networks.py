"""The three models that PipeSwitch (OSDI 2020) is measured with, as lists of layers; nothing is loaded or computed.

A layer is one call of a module without children, as PyTorch's implementations have them: 464 of ResNet-152, 189 of
Inception-v3 (whose activations are functions, so they are no layers) and 139 of BERT-base, the numbers of PipeSwitch's
table 5.  Images of 224 × 224 and 299 × 299, sentences of 128 words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

WEIGHT_BYTES = 4  # float32
CLASSES = 1000


@dataclass(frozen=True, slots=True)
class Work:
    size: int  # bytes of parameters, and of the statistics of batch norms
    operations: int  # multiplications with an addition, per image or sentence


PLAIN = Work(0, 0)  # activations, pooling, dropout


def resnet152() -> list[Work]:
    """He et al. 2015, table 1; the stride is in the 3 × 3 convolution.  60.2 M parameters."""
    return list(_resnet())


def _resnet() -> Iterator[Work]:
    yield from (*_convolution(3, 64, 49, 112), PLAIN, PLAIN)
    wide = 64
    for blocks, inner, side in ((3, 64, 56), (8, 128, 28), (36, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            before = side if block or inner == 64 else 2 * side
            yield from (*_convolution(wide, inner, 1, before), PLAIN)
            yield from (*_convolution(inner, inner, 9, side), PLAIN)
            yield from _convolution(inner, 4 * inner, 1, side)
            if not block:
                yield from _convolution(wide, 4 * inner, 1, side)
            yield PLAIN
            wide = 4 * inner
    yield from (PLAIN, _linear(wide, CLASSES))


def inception_v3() -> list[Work]:
    """Szegedy et al. 2015, table 1, without the auxiliary classifier.  23.8 M parameters."""
    steps = [
        (3, [(32, 9, 149)]), (32, [(32, 9, 147)]), (32, [(64, 9, 147)]), (64, [(80, 1, 73)]), (80, [(192, 9, 71)]),
        *(step for wide, pooled in ((192, 32), (256, 64), (288, 64)) for step in _mixed35(wide, pooled)),
        (288, [(384, 9, 17)]), (288, [(64, 1, 35), (96, 9, 35), (96, 9, 17)]),
        *(step for inner in (128, 160, 160, 192) for step in _mixed17(inner)),
        (768, [(192, 1, 17), (320, 9, 8)]), (768, [(192, 1, 17), (192, 7, 17), (192, 7, 17), (192, 9, 8)]),
        *(step for wide in (1280, 2048) for step in _mixed8(wide)),
    ]  # fmt: skip
    return [*(work for wide, branch in steps for work in _branch(wide, branch)), _linear(2048, CLASSES)]


#: Convolutions one after another: channels that each gives, area of its window, side of what it gives.
Branch = list[tuple[int, int, int]]


def _mixed35(wide: int, pooled: int) -> list[tuple[int, Branch]]:
    side = 35
    return [
        (wide, [(64, 1, side)]),
        (wide, [(48, 1, side), (64, 25, side)]),
        (wide, [(64, 1, side), (96, 9, side), (96, 9, side)]),
        (wide, [(pooled, 1, side)]),
    ]


def _mixed17(inner: int) -> list[tuple[int, Branch]]:
    wide, side = 768, 17
    return [
        (wide, [(192, 1, side)]),
        (wide, [(inner, 1, side), (inner, 7, side), (192, 7, side)]),
        (wide, [(inner, 1, side), *[(inner, 7, side)] * 3, (192, 7, side)]),
        (wide, [(192, 1, side)]),
    ]


def _mixed8(wide: int) -> list[tuple[int, Branch]]:
    side = 8
    return [
        (wide, [(320, 1, side)]),
        (wide, [(384, 1, side), (384, 3, side)]),
        (384, [(384, 3, side)]),
        (wide, [(448, 1, side), (384, 9, side), (384, 3, side)]),
        (384, [(384, 3, side)]),
        (wide, [(192, 1, side)]),
    ]


def _branch(wide: int, branch: Branch) -> Iterator[Work]:
    for out, window, side in branch:
        yield from _convolution(wide, out, window, side)
        wide = out


def bert_base() -> list[Work]:
    """Devlin et al. 2018: 12 blocks of width 768, with the pooler.  109.5 M parameters."""
    width, inner, words = 768, 3072, 128
    norm = Work(2 * width * WEIGHT_BYTES, 0)
    dense = _linear(width, width, words)
    attention = Work(0, 2 * words * words * width)  # the dropout between its two products, so both are its own here
    block = [
        *(dense, dense, dense, attention), *(dense, PLAIN, norm),
        *(_linear(width, inner, words), _linear(inner, width, words), PLAIN, norm),
    ]  # fmt: skip
    tables = [Work(rows * width * WEIGHT_BYTES, 0) for rows in (30_522, 2, 512)]  # words, kinds of sentence, positions
    return [*tables, norm, PLAIN, *block * 12, _linear(width, width), PLAIN]


def _convolution(wide: int, out: int, window: int, side: int) -> tuple[Work, Work]:
    """Without a bias, and its batch norm: scale, shift, mean and variance."""
    weights = wide * out * window
    return Work(weights * WEIGHT_BYTES, weights * side * side), Work(4 * out * WEIGHT_BYTES, 0)


def _linear(wide: int, out: int, rows: int = 1) -> Work:
    return Work((wide * out + out) * WEIGHT_BYTES, wide * out * rows)
