"""Curves of step functions, thinned: details below a pixel are left out, peaks are kept.  Times in readable units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go

from carpool.core.model import Micros
from carpool.sim.model.result import Series
from carpool.sim.model.trace_job import WHOLE_PPM

#: Approximate maximum of points in a curve.
MOST_POINTS = 2000
_KEPT = 4  # points kept of an interval: the first, the last, the lowest and the highest
_DIGITS = 6
_MOST = 200  # most of a unit before the next larger unit is used


class Scale(NamedTuple):
    """A unit of time on an axis."""

    unit: str
    us: Micros

    def all(self, times_us: Iterable[Micros]) -> list[float]:
        """Return times in this unit, rounded."""
        return [round(time / self.us, _DIGITS) for time in times_us]


_MINUTE, _HOUR = 60_000_000, 3_600_000_000
_SCALES = (Scale("ms", 1000), Scale("s", 1_000_000), Scale("min", _MINUTE), Scale("h", _HOUR), Scale("d", 24 * _HOUR))


def scale_for(longest_us: Micros) -> Scale:
    """Return the smallest unit in which the longest time is not a large number."""
    return next((scale for scale in _SCALES if longest_us <= _MOST * scale.us), _SCALES[-1])


def curve(series: Series, scale: Scale, per: float = 1.0, **options: Any) -> go.Scatter:
    """Draw a series, its values divided by ``per``."""
    thin = thinned(series)
    values = [round(value / per, _DIGITS) for value in thin.values]
    return go.Scatter(x=scale.all(thin.times), y=values, mode="lines", line_shape="hv", **options)


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """Return at most ``most`` points (at least 4): of each time interval the first, last, lowest and highest."""
    if len(series.times) <= most:
        return series
    intervals, begin = most // _KEPT, series.times[0]
    length = series.times[-1] - begin + 1

    def interval(place: int) -> int:
        return (series.times[place] - begin) * intervals // length

    thin, value = Series(), series.values.__getitem__
    for _, group in groupby(range(len(series.times)), interval):
        places = list(group)
        for place in sorted({places[0], min(places, key=value), max(places, key=value), places[-1]}):
            thin.times.append(series.times[place])
            thin.values.append(series.values[place])
    return thin


def between(series: Series, end_us: Micros) -> Series:
    """Return the series from 0 to the end of the picture: 0 before the first point, then the last value to the end."""
    whole = Series(series.times[:], series.values[:])
    if not whole.times or whole.times[0] > 0:
        whole.times.insert(0, 0)
        whole.values.insert(0, 0.0)
    if whole.times[-1] < end_us:
        whole.times.append(end_us)
        whole.values.append(whole.values[-1])
    return whole


def mean(many: Sequence[Series]) -> Series:
    """Return the mean of shares (0..1), summed in integers so that no error builds up."""
    result, total, last = Series(), 0, [0] * len(many)
    changes = merge(*(_changes(number, series) for number, series in enumerate(many)))
    for time, group in groupby(changes, lambda change: change[0]):
        for _, number, ppm in group:
            total += ppm - last[number]
            last[number] = ppm
        result.times.append(time)
        result.values.append(total / (len(many) * WHOLE_PPM))
    return result


def _changes(number: int, series: Series) -> Iterator[tuple[Micros, int, int]]:
    """Yield time, number of the series, and new value in millionths; the last of several values at one time counts."""
    points = zip(series.times, series.values, strict=True)
    for (time, value), (after, _) in pairwise([*points, (-1, 0.0)]):
        if time != after:
            yield time, number, round(value * WHOLE_PPM)
