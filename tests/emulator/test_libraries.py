"""The emulated libraries: every function that PyTorch imports is decided, exists, and writes what it must write."""

from __future__ import annotations

import ast
import ctypes
import functools
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.harness import Worker, WorkerError
from tests.emulator.torch_imports import IMPORTS, LISTS, compiled, listed, torch_at_hand, torch_like
from tools.emulator.libraries.elf import Import, SharedLibrary
from tools.emulator.libraries.source import REFUSES, statement
from tools.emulator.libraries.table import Line, Table, read_table, tables
from tools.emulator.libraries.wheel import stem_of, versions, wanted

SONAMES = sorted(IMPORTS)
#: Bytes that a word of a table writes; the others of these words have them in their value.
WIDTHS = {"int": 4, "long": 8, "text": 8, "new": 8, "new:number": 4}
SIZED = ("zeros", "integers", "characters")


@functools.cache
def table_of(soname: str) -> Table:
    return tables()[stem_of(soname)]


@functools.cache
def lines(soname: str) -> dict[str, Line]:
    """By name, the functions that are generated for this library."""
    table = table_of(soname)
    found = {symbol.name: table.line(symbol.name) or REFUSES for symbol in IMPORTS[soname]}
    return {name: line for name, line in sorted(found.items()) if not line.file}


def undecided(imports: dict[str, set[Import]]) -> list[str]:
    known = tables()
    names = [(known[stem_of(soname)], symbol.name) for soname, found in imports.items() for symbol in found]
    return [name for table, name in names if not table.line(name)]


def test_every_line_is_needed() -> None:
    """A line that no version of PyTorch, or extension, with a list needs describes functions that nobody can test."""
    names = {symbol.name for path in LISTS.rglob("*.txt") for found in listed(path).values() for symbol in found}
    unused = [
        line.pattern
        for table in tables().values()
        for line in table.lines
        if not any(Table("", lines=[line]).line(name) for name in names)
    ]
    assert unused == []


def test_imports_of_each_version_are_decided() -> None:
    versions = {path.stem: listed(path) for path in sorted(LISTS.glob("*.txt"))}
    assert len(versions) >= 3, "one list for each version that there is an emulated GPU for"
    assert [name for name, imports in versions.items() if sum(map(len, imports.values())) <= 500] == []
    wrong = [f"{name}: {function}" for name, imports in versions.items() for function in undecided(imports)]
    assert not wrong, "\n".join(wrong)


def test_imports_of_extensions_are_decided() -> None:
    lists = sorted((LISTS / "extensions").glob("*.txt"))
    assert lists
    assert [undecided(listed(path)) for path in lists] == [[] for _ in lists]


@pytest.mark.contents
def test_the_list_is_of_the_torch_at_hand() -> None:
    """Of every version that an emulated GPU is made for there is a list."""
    torch = torch_at_hand()
    version = next(torch.parents[1].glob("torch-*.dist-info")).name.removeprefix("torch-").removesuffix(".dist-info")
    assert wanted(torch) == listed(LISTS / f"torch-{version}.txt")


def test_imports_are_read_from_the_files(torch_lib: Path) -> None:
    assert wanted(torch_lib) == IMPORTS
    assert versions(torch_lib) == {"cuda": (13, 0, 0), "cudnn": (9, 20, 0), "nccl": (2, 29, 7)}


def test_imports_of_extensions_are_found_without_versions(tmp_path: Path) -> None:
    """In libraries that need PyTorch's, and in no others."""
    linked = Import("cublasCreate_v2", "libcublas.so.13", "libcublas.so.13")
    lib, packages = torch_like(tmp_path, {"libcublas.so.13": {linked}}), tmp_path / "vllm"
    packages.mkdir()
    (packages / "script.so").write_text("INPUT(libreal.so)")
    for name, function, *needed in (
        ("_C", "cublasHgemm", f"-L{lib}", "-Wl,--no-as-needed", "-l:libtorch_cuda.so"),
        ("other", "cublasSgemm_v2"),
    ):
        text = f"int {function}(void);\nvoid *imported = (void *){function};\n"
        compiled(packages / f"{name}.abi3.so", text, *needed)
    assert wanted(lib) == {"libcublas.so.13": {linked, Import("cublasHgemm")}}


def test_a_folder_without_cuda_libraries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is it torch/lib of a CUDA build"):
        wanted(tmp_path)


def test_what_is_no_elf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("INPUT(libreal.so)")
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF file"):
        SharedLibrary(tmp_path / "text.so")


@pytest.mark.parametrize("text", ["asking cublasCreate_v2 new", "prefix", "refusal 1 2"])
def test_a_line_that_means_nothing_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.table").write_text(f"# a comment\n{text}\n")
    with pytest.raises(ValueError, match="line 2"):
        read_table(tmp_path / "wrong.table")


def test_a_word_that_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="handel means nothing"):
        statement(0, "handel", [])


def test_a_function_with_two_lines_is_refused() -> None:
    table = Table("twice", lines=[Line("sets", "f.*", ()), Line("asks", "foo", ())])
    with pytest.raises(ValueError, match=r"foo more than once: f\.\*, foo"):
        table.line("foo")


def test_python_can_load_what_imports_them(libraries: Path, torch_lib: Path, worker: Worker) -> None:
    """With RTLD_NOW: every symbol is there under its version node."""
    worker.run(f"ctypes.CDLL({str(torch_lib / 'libtorch_cuda.so')!r}, mode=2)")
    assert worker.run(f"{str(libraries)!r} in open('/proc/self/maps').read()")


def expected_bytes(table: Table, word: str) -> int:
    name, _, value = word.partition("=")
    if name == "zeros":
        return int(value)
    if name == "integers":
        return 4 * len(value.split(","))
    if name == "characters":
        return len(ast.literal_eval(table.defines.get(value, value))) + 1
    return WIDTHS[name]


def expected(table: Table, line: Line) -> dict[str, int]:
    words = [(position, word) for position, word in line.arguments if word.split("=")[0] in (*WIDTHS, *SIZED)]
    return {str(position): expected_bytes(table, word) for position, word in words}


Outcomes = dict[str, dict[str, Any]]


def outcomes(soname: str, called: dict[str, Line], libraries: Path, worker: Worker) -> Outcomes:
    """What these functions of a library do, by name.  Raises what `Worker.run` does, with the library's name."""
    calls = {name: dict(line.arguments) for name, line in called.items()}
    try:
        return worker.run(f"library_calls.outcomes({str(libraries / soname)!r}, {calls!r})")  # type: ignore[no-any-return]
    except (ConnectionError, WorkerError) as error:
        error.add_note(f"in a function of {soname}")
        raise


def test_out_parameters_are_written(libraries: Path, worker: Worker) -> None:
    """Exactly their bytes, in poisoned memory.  A floating-point argument would not move the others."""
    wrong = [
        f"{soname}: {name} writes {seen[name]['written']}"
        for soname in SONAMES
        for seen in [outcomes(soname, lines(soname), libraries, worker)]
        for name, line in lines(soname).items()
        if seen[name]["written"] != expected(table_of(soname), line)
    ]
    assert not wrong, "\n".join(wrong)


def plain(soname: str) -> dict[str, Line]:
    """The functions that return a status, or a number that their line says."""
    return {
        name: line
        for name, line in lines(soname).items()
        if "status" not in line.words and (not line.returns or line.returns.lstrip("-").isdigit())
    }


def returned(table: Table, line: Line) -> int:
    refusal = table.settings["refusal"] if line.kind == "refuses" else "0"
    return int(line.returns or refusal)


def test_calls_return_what_they_should(libraries: Path, worker: Worker) -> None:
    wrong = [
        f"{soname}: {name} returns {seen[name]['returned']}"
        for soname in SONAMES
        for seen in [outcomes(soname, plain(soname), libraries, worker)]
        for name, line in plain(soname).items()
        if ctypes.c_int(seen[name]["returned"]).value != returned(table_of(soname), line)
    ]
    assert not wrong, "\n".join(wrong)
