"""What a process knows of the driver when its libraries have begun, as JSON: ``begun.py FUNCTIONS queries|pointers``.

FUNCTIONS: `src/native/cuda/functions.def`, the calls that the gate stands before.  ``queries``: what was asked of
cuGetProcAddress (`queries.c` is preloaded).  ``pointers``: words in the data of libraries that point into the gate or,
past it, to calls that it stands before (libcarpool is preloaded).
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from symbols import Region, address_of, regions

ENTRY = re.compile(r"^CP_(?:WORK|ALONE|HOOK)(_PTSZ|_PTDS)?\((?:[a-z]+, )?(cu\w+), (\d+), (\d+)", re.MULTILINE)
OWN, LEGACY = 2, 1  # streams, as flags of cuGetProcAddress


def begin() -> str:
    """PyTorch, cuBLAS and cuDNN; the device's name."""
    import torch

    values = torch.ones(64, 64, device="cuda")
    torch.mm(values, values)
    torch.nn.functional.conv2d(values.view(1, 1, 64, 64), values[:3, :3].reshape(1, 1, 3, 3))
    torch.cuda.synchronize()
    return torch.cuda.get_device_name(0)


def entries(functions: Path) -> Iterator[tuple[str, int, int]]:
    """Symbol, version and flags of each."""
    for own, symbol, version, other in ENTRY.findall(functions.read_text()):
        yield symbol, int(version), LEGACY if own or other == "0" else OWN
        if own:
            yield f"{symbol}{own.lower()}", int(other), OWN


def plain(symbol: str) -> str:
    return re.sub(r"(_v\d)?(_ptsz|_ptds)?$", "", symbol)


def real_calls(functions: Path) -> dict[int, str]:
    """The driver's own pointers of the calls that the gate stands before."""
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
    )
    ask, found = kind(address_of("cuGetProcAddress_v2", "libcuda")), {}
    for name, version, flags in entries(functions):
        address, status = ctypes.c_void_p(), ctypes.c_int()
        if not ask(plain(name).encode(), ctypes.addressof(address), version, flags, ctypes.addressof(status)):
            found[address.value or 0] = name
    return {address: name for address, name in found.items() if address}


def queries(functions: Path) -> dict[str, object]:
    """How many, and those whose answers are no form of a call that the gate knows."""
    log = Path(os.environ["QUERIES"])
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    known, hooked = real_calls(functions), {plain(name) for name, _, _ in entries(functions)}
    past = [line[:3] for line in lines if line[0] in hooked and line[3] != "0" and int(line[3]) not in known]
    return {"asked": len({tuple(line[:3]) for line in lines}), "past": sorted({" ".join(each) for each in past})}


def pointers(functions: Path) -> dict[str, object]:
    """The data is read before this program itself gets any pointer of the driver's."""
    data = [(region.path, words(region)) for region in data_of_libraries()]
    known, into, past = real_calls(functions), 0, Counter[str]()
    gate = [region for region in regions() if "/libcarpool.so" in region.path]
    for path, found in data:
        into += sum(gate[0].begin <= word < gate[-1].end for word in found)
        past.update(f"{Path(path).name}: {known[word]}" for word in found if word in known)
    return {"into": into, "past": dict(past)}


def words(region: Region) -> array.array[int]:
    return array.array("Q", ctypes.string_at(region.begin, (region.end - region.begin) // 8 * 8))


def data_of_libraries() -> Iterator[Region]:
    """Their writable parts, with what follows at once without a name (bss); not the driver's and libcarpool's."""
    before = Region(0, 0, False, "")
    for region in regions():
        path = before.path if not region.path and region.begin == before.end else region.path
        before = region._replace(path=path)
        if region.writable and ".so" in path and not re.search(r"/lib(cuda|carpool)\.so", path):
            yield before


if __name__ == "__main__":
    device = begin()
    found = {"queries": queries, "pointers": pointers}[sys.argv[2]](Path(sys.argv[1]))
    print(json.dumps(found | {"device": device}))
