"""The mirror of the block allocator puts every block where libcarpool's own would."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.estimate.rehearsal.arenas import GRAIN, AllocatorMirror

NATIVE = Path(__file__).parents[3] / "src" / "native"
BASE = 1 << 40
WRAPPER = """
#include "arena/pool.c"
static struct cp_pool pool;
int start(void) { return cp_pool_init(&pool, (char *)(1ull << 40), 1ull << 34); }
unsigned long take_bytes(unsigned long bytes) {
  size_t need = 0;
  return (unsigned long)cp_pool_alloc(&pool, bytes, 1ull << 34, 0, &need);
}
unsigned long give_back(unsigned long address) { return cp_pool_free(&pool, (void *)address); }
unsigned long high(void) { return cp_pool_high(&pool); }
int stop(void) { cp_pool_destroy(&pool); return 0; }
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("pool")
    (directory / "wrapper.c").write_text(WRAPPER)
    compiler = os.environ.get("CC") or "cc"
    command = [compiler, "-std=gnu11", "-O1", "-shared", "-fPIC", f"-I{NATIVE}", "wrapper.c", "-o", "pool.so"]
    subprocess.run(command, cwd=directory, check=True, timeout=60)
    library = ctypes.CDLL(str(directory / "pool.so"))
    for name in ("take_bytes", "give_back", "high"):
        getattr(library, name).restype = ctypes.c_ulong
        getattr(library, name).argtypes = [] if name == "high" else [ctypes.c_ulong]
    return library


@pytest.mark.parametrize("seed", range(8))
def test_the_same_requests_lead_to_the_same_places(native: ctypes.CDLL, seed: int) -> None:
    choose = random.Random(seed)
    assert native.start() == 0
    mirror, blocks = AllocatorMirror(), []
    for _ in range(4000):
        if blocks and choose.random() < 0.48:
            block = blocks.pop(choose.randrange(len(blocks)))
            mirror.free(block)
            assert native.give_back(BASE + block * GRAIN)
            continue
        size = choose.choice((1024, choose.randrange(1, 100_000), choose.randrange(1, 20_000_000)))
        blocks.append(mirror.allocate(size))
        assert BASE + blocks[-1] * GRAIN == native.take_bytes(size)
    assert mirror.high == native.high()
    native.stop()


@given(st.lists(st.integers(1, 1 << 24), min_size=1, max_size=50))
def test_blocks_without_gaps_add_up(sizes: list[int]) -> None:
    extent = AllocatorMirror()
    blocks = [extent.allocate(size) for size in sizes]
    assert extent.high == extent.live == sum(-(-size // GRAIN) * GRAIN for size in sizes)
    for block in blocks:
        extent.free(block)
    assert (extent.live, extent.top) == (0, 0)
