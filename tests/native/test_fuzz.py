"""The driver of the C fuzzers finds what breaks a target, keeps it, and replays it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.arbiter import ROOT

sys.path.insert(0, str(ROOT / "src" / "native"))
import build  # found by the line above

TARGET = """
#include "fuzz/fuzz.h"
#include <stdlib.h>
#include <unistd.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 0 && data[0] == 'c')
    if (size > 1 && data[1] == 'p') ENDS;
  return 0;
}
"""


@pytest.mark.parametrize(("ends", "prefix"), [("abort()", "crash-"), ("for (ualarm(50000, 0);;) {}", "hang-")])
def test_what_breaks_a_target_is_found_and_kept(ends: str, prefix: str, tmp_path: Path) -> None:
    """Two bytes that stand nowhere in the corpus, found one after the other by the code that they reach."""
    program, source, corpus, kept = (tmp_path / name for name in ("program", "target.c", "corpus", "kept"))
    source.write_text(TARGET.replace("ENDS", ends))
    corpus.mkdir()
    kept.mkdir()
    driver = str(ROOT / "src" / "native" / "fuzz" / "driver.c")
    common = [*build.compiler(), "-std=gnu11", "-O1", f"-I{build.NATIVE}"]
    subprocess.run([*common, "-c", driver, "-o", str(tmp_path / "driver.o")], check=True)
    coverage = ["-fsanitize-coverage=trace-pc", str(source), str(tmp_path / "driver.o")]
    subprocess.run([*common, *coverage, "-o", str(program)], check=True)
    session = [str(program), "fuzz", "60", "1", str(corpus), str(kept)]
    assert subprocess.run(session, env={"FUZZ_CRASHES": str(tmp_path)}, check=False).returncode == 1
    (found,) = tmp_path.glob(f"{prefix}*")
    assert found.read_bytes().startswith(b"cp")
    assert {path.read_bytes()[:1] for path in kept.iterdir()} >= {b"c"}
    replay = [str(program), "replay", str(kept)]
    assert subprocess.run(replay, check=False).returncode == 0
    assert subprocess.run([*replay, str(found)], env={"FUZZ_CRASHES": str(kept)}, check=False).returncode == 1
