"""Whether libcarpool can be loaded into a command's program: real files, and headers made by hand."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.engine.elf import ElfMachine, OddFile, read_program
from carpool.daemon.engine.preload_check import Command, gains_rights, look
from carpool.daemon.system.drop_privileges import become_reader

SHELL = Path("/bin/sh").resolve()
ME = (os.geteuid(), os.getegid())


def header(*, bits: int = 64, order: str = "<", machine: int = 62, segments: tuple[int, ...] = (1,)) -> bytes:
    """A program with these types of program headers and nothing else."""
    wide = bits == 64
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]).ljust(12, b"\0")
    size, start = (56, 64) if wide else (32, 52)
    fields = struct.pack(f"{order}HHI", 2, machine, 1)
    fields += struct.pack(f"{order}{'QQQ' if wide else 'III'}", 0, start, 0)
    fields += struct.pack(f"{order}IHHHHHH", 0, start, size, len(segments), 0, 0, 0)
    return ident + fields + b"".join(struct.pack(f"{order}I", kind).ljust(size, b"\0") for kind in segments)


def made(path: Path, content: bytes, mode: int = 0o755) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one."""
    directory = tmp_path_factory.mktemp("static")
    source, program = directory / "static.c", directory / "static"
    source.write_text("int main(void) { return 0; }\n")
    command = [os.environ.get("CC", "cc"), "-static", str(source), "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"this machine cannot link statically: {result.stderr}")
    return program


def command(name: str | Path, cwd: Path | str = "/", path: str = os.defpath) -> Command:
    return Command(str(name), str(cwd), path, *ME)


def seen(name: str | Path, cwd: Path | str = "/", path: str = os.defpath) -> tuple[bool, str]:
    found = look(command(name, cwd, path), SHELL)
    return found.beyond, found.text


def test_ordinary_programs() -> None:
    assert seen("sh") == seen("/bin/sh") == seen(sys.executable) == (False, "")


def statically(path: Path) -> tuple[bool, str]:
    return False, f"{path} is statically linked: it is not known yet whether the program itself uses a device"


def test_a_statically_linked_one(static: Path) -> None:
    assert seen(static) == statically(static), "launchers are, and what they start is not"
    assert subprocess.run([str(static)], check=True).returncode == 0


def test_it_is_found_as_the_start_of_the_job_finds_it(static: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "prog"
    link.symlink_to(static)
    made(tmp_path / "prog", b"cannot be run", 0o644)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "prog").mkdir()
    assert seen("prog", tmp_path, f"{tmp_path}/none:dir::bin:/bin") == statically(link)
    assert seen("bin/prog", tmp_path, "") == statically(link)
    assert seen("prog", "/", "/bin") == (
        False,
        "it is not known whether libcarpool can be loaded into prog: there is no such program",
    )


def test_a_script_is_as_its_interpreter(static: Path, tmp_path: Path) -> None:
    inner = made(tmp_path / "inner", f"#! {static} -x\n".encode())
    assert seen(made(tmp_path / "outer", f"#!{inner}".encode())) == statically(static)
    made(tmp_path / "near", b"#!./inner\n")
    assert seen("./near", tmp_path) == statically(static)
    assert seen(made(tmp_path / "usual", b"#!/bin/sh\n")) == (False, "")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "ends too early"),
        (b"#!", "names no interpreter"),
        (b"#!" + b"x" * 300, "names no interpreter"),
        (b"#!/nowhere/at/all\n", "No such file"),
        (b"#!/bin/s\0h\n", "names no interpreter"),
        (b"#!/dev/zero\n", "no regular file"),
        (b"echo without a first line\n", "no ELF file"),
        (header()[:70], "ends too early"),
        (header()[:40], "ends too early"),
        (header(segments=()), "no program"),
    ],
)
def test_odd_files_are_left_as_they_are(tmp_path: Path, content: bytes, why: str) -> None:
    beyond, text = seen(made(tmp_path / "odd", content))
    assert not beyond and why in text


def test_names_that_are_no_texts(static: Path, tmp_path: Path) -> None:
    """Whoever reports it, or writes it down, needs UTF-8."""
    shutil.copy(static, os.fsencode(tmp_path) + b"/\xffx")
    script = made(tmp_path / "script", b"#!" + os.fsencode(tmp_path) + b"/\xffx\n")
    assert seen(script) == statically(tmp_path / "\\udcffx")
    assert "embedded null" in seen("/bin/s\0h")[1]


def test_scripts_without_end(tmp_path: Path) -> None:
    path = made(tmp_path / "loop", f"#!{tmp_path}/loop\n".encode())
    assert "too many scripts" in seen(path)[1]


@pytest.mark.parametrize(
    ("program", "beyond"),
    [
        (header(segments=(1, 3)), False),
        (header(segments=(1, 2)), False),
        (header(bits=32, machine=3, segments=(3,)), True),
        (header(order=">", machine=21, segments=(3,)), True),
        (header(machine=183, segments=(3,)), True),
    ],
    ids=["dynamic", "static", "32 bits", "big-endian", "another processor"],
)
def test_headers(tmp_path: Path, program: bytes, beyond: bool) -> None:
    library = made(tmp_path / "library", header(segments=(2,)))
    assert look(command(made(tmp_path / "program", program)), library).beyond is beyond


def test_the_dynamic_loader_itself_preloads() -> None:
    loader = next(Path("/lib64").glob("ld-linux*"), None) or next(Path("/lib").glob("ld-linux*"), None)
    assert loader is not None, "glibc's"
    assert seen(loader)[0] is False and "dynamic loader" in seen(loader)[1]


def test_without_the_library_nobody_knows(static: Path, tmp_path: Path) -> None:
    assert "No such file" in look(command(static), tmp_path / "libcarpool.so").text


@given(content=st.binary(max_size=300))
def test_whatever_is_in_a_file_it_is_only_read(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = made(tmp_path_factory.getbasetemp() / "any", b"\x7fELF" + content)
    with path.open("rb") as file, suppress(OddFile):
        assert isinstance(read_program(file.fileno()).machine, ElfMachine)


def status(mode: int, uid: int = 0, gid: int = 0) -> Any:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


CAPABLE = struct.pack("<IIIII", 0x2000001, 1 << 12, 0, 0, 0)


@pytest.mark.parametrize(
    ("found", "capabilities", "gains"),
    [
        (status(0o755), b"", False),
        (status(0o4755), b"", True),
        (status(0o4755, uid=1000), b"", False),
        (status(0o2755), b"", True),
        (status(0o2755, gid=1000), b"", False),
        (status(0o2745), b"", False),
        (status(0o755), CAPABLE, True),
        (status(0o755), struct.pack("<IIIII", 0x2000000, 0, 1, 0, 1), False),
        (status(0o755), b"\1", False),
    ],
)
def test_rights_that_a_user_has_not(found: os.stat_result, capabilities: bytes, gains: bool) -> None:
    assert gains_rights(found, capabilities, 1000, 1000) is gains


def test_root_gains_nothing_by_capabilities() -> None:
    assert not gains_rights(status(0o755), CAPABLE, 0, 0)


def test_a_program_of_another_group(tmp_path: Path) -> None:
    if ME[0] != 0:
        pytest.skip("only root can give a program a group that is not its own")
    program = shutil.copy(SHELL, tmp_path / "program")
    os.chown(program, 0, 12345)
    program.chmod(0o2755)
    assert "gets rights" in seen(program)[1]


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may look into, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


def test_files_are_read_with_the_rights_of_the_owner(static: Path, public: Path) -> None:
    if ME[0] != 0:
        pytest.skip("only root reads for others")
    hidden = shutil.copy(static, public / "hidden")
    grouped = shutil.copy(static, public / "grouped")
    hidden.chmod(0o700)
    os.chown(grouped, 0, 54321)
    grouped.chmod(0o750)
    answers: list[str] = []
    rights: list[str] = []

    def read() -> None:
        become_reader(12345, 12345, [12345, 54321])
        answers.extend(look(command(path), SHELL).text for path in (hidden, grouped))
        lines = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text().splitlines()
        rights.extend(line.split()[1] for line in lines if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb")))

    reader = threading.Thread(target=read)
    reader.start()
    reader.join()
    assert "no such program" in answers[0] and answers[1] == statically(grouped)[1]
    assert rights == ["0" * 16] * 4, "nor into the files of others' processes"
    assert seen(hidden) == statically(hidden), "other threads have kept their rights"
