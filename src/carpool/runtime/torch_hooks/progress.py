"""Reports of a script to Carpool about itself.  Outside a job these calls do nothing."""

from __future__ import annotations

import operator

from .. import native
from .live_blocks import hand_over

_LARGEST = 2**63 - 1


class iteration:  # noqa: N801 - used like a function
    """``with carpool.iteration():`` marks one iteration of a loop that the hooks cannot see.

    The hooks see every step of a ``torch.optim`` optimizer.  A loop that updates its weights by hand, or computes with
    another framework, marks its iterations itself: its turn may change hands where the block ends.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        library = native.preloaded()
        if library is not None:
            library.iteration_begin()

    def __exit__(self, *_: object) -> None:
        library = native.preloaded()
        if library is not None and library.iteration_end():
            hand_over(library)


def progress(done: int, total: int) -> None:
    """Report that ``done`` of ``total`` iterations are finished, so that Carpool knows how many are left.

    Raises TypeError for anything but integers and ValueError unless 0 <= done <= total.
    """
    done, total = operator.index(done), operator.index(total)
    if not 0 <= done <= total <= _LARGEST:
        raise ValueError(f"carpool.progress({done}, {total}): expected 0 <= done <= total")
    library = native.preloaded()
    if library is not None:
        library.progress(done, total)
