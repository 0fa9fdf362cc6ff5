"""Kernels with larger pages than the library counts in: said at the start of a job, instead of wrong memory later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.native.arbiter import LIBRARY

#: What such a kernel says, for a kernel that cannot be had here.
LARGE_PAGES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
long sysconf(int name) {
  long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_PAGESIZE ? 65536 : next(name);
}
"""
ATTACH = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.cp_error.restype = ctypes.c_char_p
print(library.cp_attach(-1), library.cp_error().decode())
"""


def attached(**environment: str) -> str:
    command = [sys.executable, "-IS", "-c", ATTACH, str(LIBRARY)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_process_on_a_kernel_with_large_pages_does_not_attach(tmp_path: Path) -> None:
    preloaded = tmp_path / "large_pages.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(preloaded), "-x", "c", "-"]
    subprocess.run(command, input=LARGE_PAGES, text=True, check=True)
    assert os.sysconf("SC_PAGESIZE") == 4096
    assert "pages" not in attached()
    assert attached(LD_PRELOAD=str(preloaded)).startswith("-1 Carpool needs a kernel with pages of 4 KiB")
