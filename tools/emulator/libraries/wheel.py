"""What an installation of PyTorch, with its extensions, needs of NVIDIA's libraries, read from its files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.emulator.libraries.elf import Import, SharedLibrary
from tools.emulator.libraries.table import Table, tables


def wanted(torch_lib: Path) -> dict[str, set[Import]]:
    """By SONAME: the libraries with tables that those in this folder need, with what these and extensions import.

    Raises FileNotFoundError if the folder has no PyTorch for CUDA.
    """
    known, found = tables(), defaultdict[str, set[Import]](set)
    for library in map(SharedLibrary, sorted(torch_lib.glob("*.so"))):
        for soname in library.needed:
            if table := known.get(stem_of(soname)):
                found[soname] |= {symbol for symbol in library.imports if is_of(symbol, soname, table)}
    if not found:
        raise FileNotFoundError(f"{torch_lib} has no library that needs CUDA's: is it torch/lib of a CUDA build?")
    for extension in extensions(torch_lib.parents[1]):
        for soname, imports in found.items():
            imports |= {symbol for symbol in extension.imports if is_of(symbol, soname, known[stem_of(soname)])}
    return dict(found)


def extensions(packages: Path) -> Iterator[SharedLibrary]:
    """Libraries of other packages, such as vLLM, that call what PyTorch has loaded of NVIDIA's."""
    for path in sorted(packages.rglob("*.so")):
        with suppress(ValueError):  # no library for this machine
            library = SharedLibrary(path)
            if "libtorch_cuda.so" in library.needed and path.relative_to(packages).parts[0] != "torch":
                yield library


def is_of(symbol: Import, soname: str, table: Table) -> bool:
    return symbol.library == soname or (not symbol.library and table.owns(symbol.name))


def stem_of(soname: str) -> str:
    return soname.partition(".so")[0]


def runtime(torch_lib: Path) -> int:
    """The version of the CUDA runtime that this PyTorch needs.  Raises FileNotFoundError if it needs none."""
    for library in map(SharedLibrary, sorted(torch_lib.glob("*.so"))):
        for soname in library.needed:
            if stem_of(soname) == "libcudart":
                return int(soname.rpartition(".")[2])
    raise FileNotFoundError(f"{torch_lib} has no library that needs CUDA's runtime: is it torch/lib of a CUDA build?")


def versions(torch_lib: Path) -> dict[str, tuple[int, int, int]]:
    """Versions of CUDA, cuDNN and NCCL that this PyTorch was built for: it refuses an older cuDNN than its own.

    Raises ValueError if its files do not say one of them.
    """
    metadata = "".join(path.read_text() for path in torch_lib.parents[1].glob("torch-*.dist-info/METADATA"))
    pins = re.findall(r"^Requires-Dist: nvidia-(\w+)-cu\d+ ?[(=]*=(\d+)\.(\d+)\.(\d+)", metadata, re.MULTILINE)
    found = {name: (int(major), int(minor), int(patch)) for name, major, minor, patch in pins}
    if cuda := re.search(r"^cuda\b.*= '(\d+)\.(\d+)", (torch_lib.parent / "version.py").read_text(), re.MULTILINE):
        found["cuda"] = (int(cuda[1]), int(cuda[2]), 0)
    for name in ("cuda", "cudnn", "nccl"):
        if name not in found:
            raise ValueError(f"{torch_lib.parent} does not say which version of {name} it was built for")
    return found
