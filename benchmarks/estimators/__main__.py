"""``python -m benchmarks.estimators --data DIR``: learn from measured runs and write the weights that are shipped.

The same data give the same file, byte for byte; ``--check`` says whether the shipped one is what comes out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.estimators.calibrating import calibrate
from benchmarks.estimators.data import NoData, Row, read, read_catalogue, sound
from benchmarks.estimators.training import content, train

SHIPPED = Path(__file__).resolve().parents[2] / "src" / "carpool" / "estimate" / "weights"
SOURCE = "a public set of image models of timm, measured on an A100 40 GB"
CATALOGUE = "CARMA's catalogue of training tasks, measured on an A100 40 GB"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("CARPOOL_ESTIMATES"), help="folder with the figures"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED, help="where the weights go")
    parser.add_argument("--check", action="store_true", help="compare with what is there and write nothing")
    options = parser.parse_args(arguments)
    try:
        files = {"learned.json": learned(sound(read(options.data))), "horus.json": horus(options.data)}
    except NoData as error:
        parser.error(str(error))
    if options.check:
        return _check(files, options.out)
    for name, text in files.items():
        (options.out / name).write_text(text, encoding="utf-8")
        print(f"written: {options.out / name}, {len(text) / 1024:.0f} KiB")
    return 0


def learned(rows: Sequence[Row]) -> str:
    return _text(content(train(rows), SOURCE))


def horus(directory: Path | None) -> str:
    return _text({"source": CATALOGUE, **calibrate(read_catalogue(directory))})


def _text(content: object) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


def _check(files: dict[str, str], directory: Path) -> int:
    different = [name for name, text in files.items() if (directory / name).read_text(encoding="utf-8") != text]
    print(f"not what comes out of these data: {', '.join(different)}" if different else "the same, byte for byte")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
