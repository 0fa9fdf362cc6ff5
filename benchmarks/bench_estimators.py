"""Estimates of memory for models that training has not seen, against measured runs.

``python -m benchmarks.bench_estimators --data DIR`` (or ``CARPOOL_ESTIMATES=DIR`` with ``python -m benchmarks
estimators``): DIR has the measured figures, which are others' and not in this repository.  Each row is estimated by
weights that were trained, margins included, without its model, or without its whole family.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.estimators.data import NoData, Row, read, sound
from benchmarks.estimators.judging import CAPACITY_MIB, Judged, Verdict, floor, hold_out, verdict
from benchmarks.figures import Figure, Skipped, measured_once
from carpool.estimate.learned.trees import LEVELS

FOLDS = 5
ERROR, UNDER, OVERSHOOT_GB = 0.07, 0.05, 2.5
FEW = 15  # families with fewer rows are not shown
WORKERS = 2


def run(quick: bool) -> list[Figure]:
    given = os.environ.get("CARPOOL_ESTIMATES")
    try:
        rows = read(Path(given) if given else None)
    except NoData as error:
        raise Skipped(str(error)) from None
    cases = [("peaks", "family")] if quick else [(level, by) for level in LEVELS for by in ("family", "model")]
    with ProcessPoolExecutor(WORKERS) as pool:
        held_out = list(pool.map(_hold_out, [rows] * len(cases), cases))
    figures = _without_learning(rows)
    for (level, by), judged in zip(cases, held_out, strict=True):
        figures += _figures(f"{level}, held out by {by}", judged)
    return figures


def _hold_out(rows: Sequence[Row], case: tuple[str, str]) -> list[Judged]:
    level, by = case
    return hold_out(rows, level, family if by == "family" else model, FOLDS)


def family(row: Row) -> str:
    return row.family


def model(row: Row) -> str:
    return row.model


# Figures


def _without_learning(rows: Sequence[Row]) -> list[Figure]:
    good = sound(rows)
    alone = [Judged(row, 0, row.live, row.live) for row in good]
    shown = verdict(alone)
    return [
        _once("fake tensors alone, sound rows: relative error", "ratio", shown.error, under=shown.under),
        _once("rows whose reading is below the live tensors", "rows", float(len(rows) - len(good)), of=len(rows)),
        _once("floor of the error with those rows: all else perfect", "ratio", floor(rows)),
        _once("the same, nothing above 40 GB", "ratio", floor(rows, CAPACITY_MIB)),
    ]


def _once(name: str, unit: str, value: float, **detail: float) -> Figure:
    return measured_once("estimators", name, unit, value, **detail)


def _figures(name: str, judged: Sequence[Judged]) -> list[Figure]:
    kept = {id(row) for row in sound([each.row for each in judged])}
    good, everything = [each for each in judged if id(each.row) in kept], verdict(judged)
    capped = verdict([each.capped() for each in judged])
    by_fold = [verdict([each for each in good if each.fold == fold]) for fold in sorted({each.fold for each in good})]
    whole, batches = verdict(good), _by(good, lambda each: str(each.row.features.batch_size))
    families = _by(good, lambda each: each.row.family, FEW)

    def figure(what: str, unit: str, of: Callable[[Verdict], float], target: float) -> Figure:
        folds = [of(each) for each in by_fold]
        detail = {
            "by_batch": {key: round(of(each), 4) for key, each in batches.items()},
            "by_family": {key: round(of(each), 4) for key, each in families.items()},
            "with_unsound_rows": of(everything), "with_unsound_rows_at_most_40_GB": of(capped),
            "rows": whole.rows, "folds": folds,
        }  # fmt: skip
        title = f"{name}: {what}"
        return Figure("estimators", title, of(whole), unit, min(folds), max(folds), FOLDS, target, False, detail)

    return [
        figure("relative error, mean", "ratio", lambda each: each.error, ERROR),
        figure("runs above the range", "ratio", lambda each: each.under, UNDER),
        figure("range beyond the measured, mean", "GB", lambda each: each.overshoot_gb, OVERSHOOT_GB),
        replace(figure("relative error, median", "ratio", lambda each: each.median_error, ERROR), target=None),
    ]


def _by(judged: Iterable[Judged], key: Callable[[Judged], str], least: int = 1) -> dict[str, Verdict]:
    rows = list(judged)
    counts = Counter(map(key, rows))
    names = sorted((name for name, count in counts.items() if count >= least), key=lambda name: (len(name), name))
    return {name: verdict([each for each in rows if key(each) == name]) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_estimators", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the measured figures")
    parser.add_argument("--quick", action="store_true", help="one case only")
    options = parser.parse_args()
    if options.data is not None:
        os.environ["CARPOOL_ESTIMATES"] = str(options.data)
    from benchmarks.__main__ import main as measure

    sys.argv = [sys.argv[0], "--label", "estimators", *(["--quick"] if options.quick else []), "estimators"]
    try:
        read(Path(os.environ.get("CARPOOL_ESTIMATES", "")))
    except NoData as error:
        parser.error(str(error))
    return measure()


if __name__ == "__main__":
    sys.exit(main())
