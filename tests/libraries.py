"""Libraries of the emulated GPU that tests load, compiled once into ``build/emulated``, whoever asks first.

``python -m tests.libraries`` compiles all of them: make does so before the workers of a run begin.  A folder is named
after what its libraries are made of, so a changed source gives another folder, and nothing that is there changes.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.emulator.torch_imports import IMPORTS, LISTS, torch_like
from tools.emulator.build import EMULATOR, NATIVE, RUNTIMES, build_driver, build_libraries, build_nvml, build_runtime

ROOT = NATIVE.parents[1]
BUILT = ROOT / "build" / "emulated"
#: Stand-ins for libraries of PyTorch's: the gate knows the real ones by the names of their files, and the last one is
#: where PyTorch does not look for it.
STAND_INS = {"ALLOCATOR": "libc10_cuda.so", "NCCL": "libnccl.so.2", "C10": "libc10/libc10.so"}
ALLOCATOR, NCCL = ROOT / "tests" / "cuda" / "c10_cuda.c", NATIVE / "tests" / "cuda" / "fake_caller.c"


def driver() -> Path:
    """``libcuda.so.1``.  Its folder goes into LD_LIBRARY_PATH of processes that are to use it."""
    return _once("driver", build_driver) / "libcuda.so.1"


def nvml() -> Path:
    """``libnvidia-ml.so.1``, in a folder of its own, for LD_LIBRARY_PATH."""
    return _once("nvml", build_nvml) / "libnvidia-ml.so.1"


def runtimes() -> Path:
    """The folder of the driver and of each version of the CUDA runtime."""
    return _once("runtimes", build_runtimes)


def stand_ins() -> Path:
    """The folder of `STAND_INS`."""
    return _once("stand-ins", _build_stand_ins)


def torch() -> Path:
    """``torch/lib`` of a folder whose library imports what PyTorch's do."""
    return _once("torch", lambda place: torch_like(place, IMPORTS)) / "torch" / "lib"


def vendor() -> Path:
    """The folder of the driver and of all that PyTorch imports of NVIDIA's libraries."""
    return _once("vendor", _build_vendor)


def build_runtimes(place: Path, sanitize: str | None = None) -> None:
    build_driver(place, sanitize)
    for version in RUNTIMES:
        build_runtime(place, sanitize, version)


def _build_vendor(place: Path) -> None:
    build_driver(place)
    build_libraries(torch(), place)


def _build_stand_ins(place: Path) -> None:
    _compile([str(ALLOCATOR), str(driver())], place / STAND_INS["ALLOCATOR"])
    _compile(["-DLIBNCCL", str(NCCL)], place / STAND_INS["NCCL"])
    (place / STAND_INS["C10"]).parent.mkdir()
    _compile(["-x", "c", os.devnull], place / STAND_INS["C10"])


def _compile(sources: list[str], library: Path) -> None:
    compiler = shlex.split(os.environ.get("CC") or "cc")
    command = [*compiler, "-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Werror", f"-I{NATIVE}"]
    subprocess.run([*command, *sources, "-o", str(library)], check=True, timeout=60)


def _once(name: str, build: Callable[[Path], object]) -> Path:
    """The folder ``name`` for the sources as they are now, renamed from the one that it was built in."""
    place = BUILT / _key() / name
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=place.parent, prefix=f"{name}."))
    partial.chmod(0o755)  # processes of other users load them, too
    build(partial)
    try:
        return partial.rename(place)
    except OSError:  # another worker was quicker
        shutil.rmtree(partial)
        return place


@cache
def _key() -> str:
    """A name for everything that the libraries are compiled from, and for the compiler."""
    digest = hashlib.sha256((os.environ.get("CC") or "cc").encode())
    for source in sorted(_sources()):
        digest.update(f"{source.relative_to(ROOT)}\0".encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    yield from (path for path in EMULATOR.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    yield from (path for pattern in ("*/*.h", "*/*/*.h") for path in NATIVE.glob(pattern))
    yield from (*LISTS.rglob("*.txt"), ALLOCATOR, NCCL)


if __name__ == "__main__":
    for folder in (driver, nvml, runtimes, stand_ins, vendor):
        print(folder())
