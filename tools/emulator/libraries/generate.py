"""Files from which a library of the emulated GPU is compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tools.emulator.libraries.elf import Import
from tools.emulator.libraries.source import library_source
from tools.emulator.libraries.table import tables
from tools.emulator.libraries.wheel import stem_of

HERE = Path(__file__).parent
COMMON = ("compute.c", "numbers.c")


def version_script(imports: Iterable[Import]) -> str:
    """The linker's script that gives each symbol the version node under which it is imported."""
    nodes = defaultdict[str, list[str]](list)
    for symbol in sorted(imports):
        if symbol.version:
            nodes[symbol.version].append(symbol.name)
    return "\n".join(f"{node} {{ global: {'; '.join(names)}; }};" for node, names in nodes.items())


def write_library(soname: str, imports: set[Import], directory: Path) -> tuple[list[Path], list[str]]:
    """Writes the generated files into the directory; returns all C files and the linker's options for them."""
    table = tables()[stem_of(soname)]
    source, script = directory / f"{soname}.c", directory / f"{soname}.map"
    source.write_text(library_source(table, {symbol.name for symbol in imports}))
    script.write_text(version_script(imports))
    options = [f"-Wl,-soname,{soname}", *([f"-Wl,--version-script={script}"] if script.stat().st_size else [])]
    return [source, *(HERE / name for name in (*COMMON, *sorted(table.files)))], options


def definitions(versions: dict[str, tuple[int, int, int]]) -> list[str]:
    """Compiler options: cudnn_major, cudnn_minor, cudnn_patch and so on."""
    return [
        f"-D{name}_{part}={number}"
        for name, numbers in versions.items()
        for part, number in zip(("major", "minor", "patch"), numbers, strict=True)
    ]
