"""``python -m benchmarks.pictures sweep RESULT.json`` or ``... timeline``: write a picture into ``docs/pictures``."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.pictures import sweep, timeline

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["sweep", result]:
            name, picture = "quanta", sweep.draw(Path(result))
        case ["timeline"]:
            name, picture = "turns-and-moves", timeline.draw()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"{name}.svg"
    path.write_text(picture)
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
