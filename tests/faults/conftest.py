"""Daemons in which system calls fail (see `inject.py`)."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.nursery import Nursery

FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
LIBRARIES = ("-ldl", "-lpthread")


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    directory = tmp_path_factory.mktemp("nursery")
    library = directory / "preload.so"
    source = Path(__file__).with_name("preload.c")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    subprocess.run([*compiler, *FLAGS, str(source), "-o", str(library), *LIBRARIES], check=True)
    nursery = Nursery(directory, library)
    yield nursery
    nursery.close()
