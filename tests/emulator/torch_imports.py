"""What versions of PyTorch import, from lists in ``imports/``: libraries, under each its functions and version nodes.

A folder with a small library that imports the same stands for PyTorch where a test does not need more of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests import emulated
from tools.emulator.build import compile_library
from tools.emulator.environment import VENV
from tools.emulator.libraries.elf import Import
from tools.emulator.libraries.generate import version_script

LISTS = Path(__file__).with_name("imports")


def listed(path: Path) -> dict[str, set[Import]]:
    """By SONAME, as `emulator.libraries.wheel.wanted` says it."""
    found: dict[str, set[Import]] = {}
    for line in path.read_text().splitlines():
        if not line.startswith(" "):
            soname = line
            found[soname] = set()
        else:
            name, _, version = line.strip().partition(" ")
            found[soname].add(Import(name, soname if version else "", version))
    return found


#: What the tests build libraries for.
IMPORTS = listed(LISTS / "torch-2.13.0.txt")


def torch_at_hand() -> Path:
    """``torch/lib`` of the emulated GPU's environment; fails the test if there is none."""
    emulated.need()
    (found,) = VENV.glob("lib/python*/site-packages/torch/lib")
    return found


def compiled(output: Path, text: str, *options: str) -> Path:
    source = output.with_suffix(".c")
    source.write_text(text)
    return compile_library(output, [source], "-fvisibility=default", *options)


def vendor_library(directory: Path, soname: str, imports: Iterable[Import]) -> Path:
    """A library with these symbols that does nothing: what PyTorch was linked with."""
    script = directory / f"{soname}.map"
    script.write_text(version_script(imports))
    options = [f"-Wl,--version-script={script}"] if script.stat().st_size else []
    functions = "".join(f"int {symbol.name}(void);\nint {symbol.name}(void) {{ return 0; }}\n" for symbol in imports)
    return compiled(directory / soname, functions, f"-Wl,-soname,{soname}", *options)


def torch_like(directory: Path, libraries: dict[str, set[Import]]) -> Path:
    """``torch/lib`` with one library that needs these libraries and imports these symbols."""
    vendor, lib = directory / "vendor", directory / "torch" / "lib"
    vendor.mkdir(parents=True)
    lib.mkdir(parents=True)
    linked = [str(vendor_library(vendor, soname, sorted(imports))) for soname, imports in libraries.items()]
    names = sorted(symbol.name for imports in libraries.values() for symbol in imports)
    declared = "".join(f"int {name}(void);\n" for name in names)
    text = f"{declared}void *imports[] = {{{', '.join(f'(void *){name}' for name in names)}}};\n"
    compiled(lib / "libtorch_cuda.so", text, "-Wl,--no-as-needed", *linked)
    (lib.parent / "version.py").write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n")
    metadata = directory / "torch-2.13.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    pins = ["nvidia-cudnn-cu13==9.20.0.48", "nvidia-nccl-cu13==2.29.7"]
    metadata.write_text("".join(f'Requires-Dist: {pin}; platform_system == "Linux"\n' for pin in pins))
    return lib
