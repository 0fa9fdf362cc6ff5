"""Pipeline groups: which consecutive layers of a model travel to the device together.

A transfer costs something by itself, so one per layer is slow; a layer waits for all of its group, so one for the whole
model is slow, too.  The model of time is that of PipeSwitch (OSDI 2020, § 4.2): transfers follow one another without a
gap, and a group computes when its transfer and the computing of the group before it are done.

A *grouping* is a tuple with the number of layers up to the end of each group: ``(1, 3)`` is the first layer alone, then
two together.  Times are integer nanoseconds: a layer may compute for less than the microsecond that the rest of the
core counts in.  Nothing drifts, because the bytes so far are divided by the rate, not each layer's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

NS_PER_S = 1_000_000_000

Grouping = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LayerCost:
    """The bytes first used at one point of the model, and the computing time that follows.

    Raises ValueError for a negative figure.
    """

    size: int  # bytes; 0 for an activation
    compute_ns: int

    def __post_init__(self) -> None:
        if self.size < 0 or self.compute_ns < 0:
            raise ValueError(f"a layer cannot have {self.size} bytes and compute for {self.compute_ns} ns")


@dataclass(frozen=True, slots=True)
class LinkCost:
    """The link to the device.  Raises ValueError for a negative cost, and for a rate that is not positive."""

    transfer_ns: int  # fixed cost of each transfer
    rate: int  # bytes per second

    def __post_init__(self) -> None:
        if self.transfer_ns < 0 or self.rate <= 0:
            raise ValueError(f"a link cannot cost {self.transfer_ns} ns per transfer at {self.rate} bytes per second")


@dataclass(frozen=True, slots=True)
class _Times:
    """Sums over the first layers, one entry more than there are layers."""

    moved: tuple[int, ...]  # ns until they are on the device, without the fixed costs of transfers
    computed: tuple[int, ...]  # ns that they compute
    transfer_ns: int

    @classmethod
    def of(cls, layers: Sequence[LayerCost], link: LinkCost) -> _Times:
        if not layers:
            raise ValueError("a model without layers has no groups")
        sizes = accumulate((layer.size for layer in layers), initial=0)
        moved = tuple(-(-size * NS_PER_S // link.rate) for size in sizes)
        return cls(moved, tuple(accumulate((layer.compute_ns for layer in layers), initial=0)), link.transfer_ns)

    @property
    def layers(self) -> int:
        return len(self.moved) - 1

    def there(self, count: int, end: int) -> int:
        """Return when transfer number ``count`` (from 1) has ended, if its group ends at ``end``."""
        return count * self.transfer_ns + self.moved[end]

    def furthest(self, count: int, until: int) -> int:
        """Return the last end that transfer number ``count`` can reach by ``until``."""
        return max(0, bisect_right(self.moved, until - count * self.transfer_ns) - 1)


def start(layers: Sequence[LayerCost], link: LinkCost, grouping: Grouping) -> int:
    """Return when the first layer can compute: the first transfer's end, in ns.  Raises ValueError as `finish` does."""
    times = _checked(layers, link, grouping)
    return times.there(1, grouping[0])


def finish(layers: Sequence[LayerCost], link: LinkCost, grouping: Grouping) -> int:
    """Return when the last layer has computed, in ns from the begin of the first transfer.

    Raises ValueError for no layers, and for a grouping whose ends do not rise up to the last layer's.
    """
    times = _checked(layers, link, grouping)
    now = 0
    for count, (begin, end) in enumerate(pairwise((0, *grouping)), 1):
        now = max(now, times.there(count, end)) + times.computed[end] - times.computed[begin]
    return now


def _checked(layers: Sequence[LayerCost], link: LinkCost, grouping: Grouping) -> _Times:
    times = _Times.of(layers, link)
    if grouping[-1:] != (times.layers,) or any(begin >= end for begin, end in pairwise((0, *grouping))):
        raise ValueError(f"groups that end after layers {grouping} do not make up a model of {times.layers} layers")
    return times


def optimal(layers: Sequence[LayerCost], link: LinkCost) -> Grouping:
    """The grouping with the least `finish`; of those one with the least `start`; of those one with the fewest groups.

    With ``t(k)`` the end of transfer k and ``c(k)`` the computing of all layers before group k, the finish is all the
    computing and D, the largest of ``t(k) - c(k)``: after the last group that waited for its transfer computing has no
    gap.  So the question is whether some groups have ``t(k) <= D + c(k)`` for every k, and for which least D.

    For one D it is answered by extending each group as far as that allows.  Let e(k) be the ends of these groups, and
    f(k) those of any groups that keep to D.  Then e(k) >= f(k), by induction: if the group before ends no earlier, c(k)
    is no less, so transfer k has as much time or more, and reaches f(k) at least.  Hence these groups reach the last
    layer if any do, and are no more than any.  The least D, and then the least start for that D, are found by halving,
    because what is possible stays possible with more of either.

    O(log(time) × groups × log(layers)).  Raises ValueError for no layers.
    """
    times = _Times.of(layers, link)
    least, most = times.there(1, 1), times.there(1, times.layers)
    idle = _least(least, most, lambda ns: _groups(times, ns, ns) is not None)
    first = _least(least, idle, lambda ns: _groups(times, idle, ns) is not None)
    found = _groups(times, idle, first)
    assert found is not None  # the one group idles for `most`
    return found


def at_least(sizes: Sequence[int], least: int) -> Grouping:
    """Join consecutive layers until a group has ``least`` bytes; for a device whose times have not been measured.

    The last group may have less.  Raises ValueError for no layers.
    """
    if not sizes:
        raise ValueError("a model without layers has no groups")
    ends, size = [], 0
    for end, bytes_ in enumerate(sizes, 1):
        size += bytes_
        if size >= least or end == len(sizes):
            ends.append(end)
            size = 0
    return tuple(ends)


def _groups(times: _Times, idle: int, first: int) -> Grouping | None:
    """Return the furthest ends with at most ``idle`` idle time and a start by ``first``.

    None if these groups do not reach the last layer.
    """
    ends: list[int] = []
    begin, until = 0, first
    while begin < times.layers:
        end = times.furthest(len(ends) + 1, until)
        if end <= begin:
            return None
        ends.append(end)
        begin, until = end, idle + times.computed[end]
    return tuple(ends)


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number from which on ``holds`` is true, which it is for ``high``."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
