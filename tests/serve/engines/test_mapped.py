"""Files of weights that processes have mapped, by what they hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from carpool.core.model import MIB
from carpool.protocol.engines import LOADING_OPTIONS
from carpool.serve.engines.mapped import mapped_weights

MAPPER = """
import mmap, os, sys
kept = [mmap.mmap(os.open(name, os.O_RDONLY), 0, prot=mmap.PROT_READ) for name in sys.argv[1:]]
child = os.fork()
if child:
    kept.pop(0).close()
    print(flush=True)
sys.stdin.read()
if child:
    os.waitpid(child, 0)
"""


def test_files_of_weights_are_told_by_their_beginnings(tmp_path: Path) -> None:
    """A cache of models names files by their digests; a worker has mapped one that its parent has not."""
    beginnings = {
        "blob of one": b"GGUF" + bytes(5),
        "a blob of three": (64).to_bytes(8, "little") + b"{",
        "data.gguf": b"other",
        "long.safetensors": bytes(7) + b"\1{",
    }
    for name, head in beginnings.items():
        (tmp_path / name).write_bytes(head.ljust(2 * MIB))
    small = tmp_path / "small"
    small.write_bytes(b"GGUF".ljust(MIB // 2))
    (tmp_path / "two of one").write_bytes(b"GGUF".ljust(3 * MIB))
    with subprocess.Popen(
        [sys.executable, "-S", "-c", MAPPER, *map(str, tmp_path.iterdir())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert mapped_weights(process.pid) == {"gguf": 5 * MIB, "safetensors": 2 * MIB}
    assert mapped_weights(process.pid) == {}


@pytest.mark.parametrize("option", LOADING_OPTIONS.values())
def test_the_page_has_the_options(option: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()
    assert option in page.replace("`", "").replace("\n", " ")
