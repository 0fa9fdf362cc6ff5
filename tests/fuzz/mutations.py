"""Inputs for targets: what a corpus has, changed in a few places.

Hypothesis draws the changes, so that it can shrink what fails, and repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

LARGEST = 64 * 1024
#: Numbers at which much changes, as JSON and TOML write them; the edges of containers and texts.
WORDS = (
    *(str(number).encode() for number in (0, -1, 255, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64)),
    *(b"9" * 5000, b"1e400", b"-0.0", b"NaN", b"null", b"true", b"{}", b"[]", b'""', b"\0", b"\xff\xfe", b"\\ud800"),
    *(b"[" * 5000, b'{"x":' * 3000, b'{"x":' + b"[" * 3000, b"\r\n", b"\n\n", b"=", b",", b'"'),
)


@st.composite
def mutated(draw: st.DrawFn, corpus: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """``words``: pieces that mean something to the target."""
    data = draw(st.sampled_from(corpus))
    pieces = st.one_of(st.sampled_from((*words, *WORDS)), st.binary(max_size=8), st.sampled_from(corpus))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(at + draw(st.sampled_from((0, 1, 8, LARGEST))), len(data))))
        data = data[:at] + draw(pieces) + data[end:]
    return data[:LARGEST]
