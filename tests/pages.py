"""Pages of the documentation, done as they say.

A block marked ``sh`` is run; a line ``command  # prints: TEXT`` must print TEXT.
A listing under ``<!-- file NAME -->`` lies in the directory from the beginning.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.live import PATIENCE_S

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"<!-- file ([\w.]+).*? -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTS = re.compile(r"# prints: (.+)$", re.MULTILINE)


def _marker(index: int) -> str:
    return f"--- end of block {index} ---"


def _write_files(text: str, directory: Path) -> None:
    for name, listing in _FILE.findall(text):
        (directory / name).write_text(listing)
        (directory / name).chmod(0o644)  # whatever the umask: a daemon wants nobody else to write to a policy


def does_what_it_says(
    page: str, directory: Path, environment: Mapping[str, str], story: Callable[[], str] = str, *, least: int = 1
) -> None:
    """``story``: what else is told if it does not.  ``least``: so many blocks it has."""
    text = (DOCS / page).read_text()
    found = _BLOCK.findall(text)
    assert len(found) >= least
    _write_files(text, directory)
    # One script, so that variables and directories live on; a mark after each block says where output belongs.
    script = "set -euo pipefail\n" + "".join(f"{block}\necho '{_marker(i)}'\n" for i, block in enumerate(found))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}{story()}"
    rest = done.stdout
    for index, block in enumerate(found):
        output, mark, rest = rest.partition(_marker(index))
        assert mark, f"block {index} did not end"
        for printed in _PRINTS.findall(block):
            assert printed.strip() in output, f"{block}\nprinted\n{output}{story()}"
