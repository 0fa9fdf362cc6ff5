"""``python -m benchmarks.pictures sweep RESULT.json``, ``... timeline`` or ``... terminal``: write pictures into
``docs/pictures``."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.pictures import sweep, terminal, timeline

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["sweep", result]:
            pictures = {"quanta": sweep.draw(Path(result))}
        case ["timeline"]:
            pictures = {"turns-and-moves": timeline.draw()}
        case ["terminal"]:
            pictures = terminal.draw()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    PICTURES.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        path = PICTURES / f"{name}.svg"
        path.write_text(picture)
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
