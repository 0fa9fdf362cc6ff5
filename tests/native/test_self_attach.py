"""Which processes of a job attach without a word of the runtime, and when: the library alone, and no daemon.

A process that attaches finds no attach socket, says so, and runs without Carpool.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY, ROOT

GGML = ROOT / "tests" / "e2e" / "native" / "ggml_base.c"
JOB = {"CARPOOL_JOB": "1", "CARPOOL_HOME": "/nowhere"}
SAYS = "the job's attach socket does not accept connections"
#: What is in the program's ``main``.
USES = "use();"
PROGRAM = """
#include <string.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
void *ggml_aligned_malloc(size_t bytes);
static void use(void) {
  char *memory = ggml_aligned_malloc(1 << 20);
  if (!memory) exit(2);
  memset(memory, 1, 1 << 20);
  free(memory);
}
int main(void) {
  int status = 0;
  MAIN
  return status;
}
"""
PYTHON = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.ggml_aligned_malloc.restype = ctypes.c_void_p
assert library.ggml_aligned_malloc(ctypes.c_size_t(1 << 20))
"""
#: Of a library whose constructors come before all others.
EARLY = "#include <stddef.h>\nvoid *ggml_aligned_malloc(size_t);"
EARLY += "__attribute__((constructor)) static void early(void) { if (!ggml_aligned_malloc(1 << 20)) __builtin_trap(); }"


def compile_(source: str, output: Path, *more: str) -> Path:
    command = [*shlex.split(os.environ.get("CC") or "cc"), "-std=gnu11", "-O1", "-x", "c", "-", "-x", "none", *more]
    subprocess.run([*command, "-o", str(output)], input=source, text=True, check=True)
    return output


@pytest.fixture(scope="module")
def ggml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("ggml") / "libggml-base.so"
    return compile_(GGML.read_text(), library, "-fPIC", "-shared", "-Wl,-soname,libggml-base.so")


def program(ggml: Path, directory: Path, main: str, *more: str) -> list[str]:
    own = [str(ggml), f"-Wl,-rpath,{ggml.parent}", f"-DMAIN={main}", *more]
    return [str(compile_(PROGRAM, directory / "program", *own))]


def said(command: list[str], **variables: str) -> str:
    """Run a process of a job, without a daemon, until it has ended well."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "LD_"))}
    environment = plain | {"LD_PRELOAD": str(LIBRARY)} | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stderr


def test_a_program_with_ggml_attaches_with_its_first_use(ggml: Path, tmp_path: Path) -> None:
    assert said(program(ggml, tmp_path, "use(); use();"), **JOB).count(SAYS) == 1


@pytest.mark.parametrize(
    ("main", "variables"),
    [
        ("", JOB),
        ("if (!ggml_aligned_malloc(1 << 16)) return 2;", JOB),
        (USES, {}),
        (USES, JOB | {"CARPOOL_DISABLE": "1"}),
        (USES, JOB | {"CARPOOL_CUDA_DEVICE": "GPU-1"}),
    ],
    ids=["no use", "metadata", "no job", "disabled", "on a GPU"],
)
def test_a_program_does_not_attach(ggml: Path, tmp_path: Path, main: str, variables: dict[str, str]) -> None:
    assert said(program(ggml, tmp_path, main), **variables) == ""


def test_python_attaches_by_itself_only_in_an_engine(ggml: Path) -> None:
    command = [sys.executable, "-ISc", PYTHON, str(ggml)]
    assert said(command, **JOB) == ""
    assert said(command, **JOB, CARPOOL_ENGINE="1").count(SAYS) == 1


@pytest.mark.parametrize("before", ["", USES], ids=["unused", "used"])
def test_a_fork_of_a_process_without_a_seat_attaches_itself(ggml: Path, tmp_path: Path, before: str) -> None:
    """Its parent is refused, as it is here, or has allocated nothing."""
    main = f"{before} if (!fork()) {{ use(); _exit(0); }} wait(&status);"
    assert said(program(ggml, tmp_path, main), **JOB).count(SAYS) == 1 + (before == USES)


def test_what_is_allocated_before_the_library_has_started(ggml: Path, tmp_path: Path) -> None:
    early = tmp_path / "libearly.so"
    compile_(EARLY, early, "-fPIC", "-shared", str(ggml), f"-Wl,-rpath,{ggml.parent}")
    more = ["-Wl,--no-as-needed", str(early), f"-Wl,-rpath,{tmp_path}"]
    assert said(program(ggml, tmp_path, "", *more), **JOB) == ""
    assert said(program(ggml, tmp_path, USES, *more), **JOB).count(SAYS) == 1
