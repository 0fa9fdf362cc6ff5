"""Two processes of one job that use the device: train.py twice, started by a launcher that uses nothing itself.

    pair.py RESULT [--victim] ARGUMENTS...

The arguments are those of train.py.  ``--victim``: the first one never ends by itself and is killed on its way.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")


def start(result: str, arguments: list[str], **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(TRAIN), result, *arguments], text=True, **options)  # type: ignore[call-overload]


def main() -> None:
    out, *arguments = sys.argv[1:]
    victim = "--victim" in arguments
    arguments = [argument for argument in arguments if argument != "--victim"]
    endless = ["--iterations", "1000000"] if victim else []
    first = start(f"{out}.1", arguments + endless, stdout=subprocess.PIPE if victim else None)
    second = start(f"{out}.2", arguments)
    if victim:
        assert first.stdout is not None
        assert "under way" in first.stdout.readline()
        first.kill()
    codes = [first.wait(), second.wait()]
    assert codes == [-9 if victim else 0, 0], codes
    results = [json.loads(Path(f"{out}.{number}").read_text()) for number in ((2,) if victim else (1, 2))]
    Path(out).write_text(json.dumps({"digests": [result["digest"] for result in results]}))


main()
