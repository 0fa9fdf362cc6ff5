"""Our declarations of the driver are the real header's: names, numbers, layouts and prototypes.

Skipped where no CUDA toolkit is installed, which is the usual case.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "src" / "native"
DRIVER = NATIVE / "cuda" / "driver"
EMULATED = ROOT / "tools" / "emulator" / "driver"
TYPES = [*(DRIVER / name for name in ("types.h", "memory.h", "launch.h", "semaphores.h")), EMULATED / "extra_types.h"]
CALLS = [*(DRIVER / name for name in ("driver.h", "graphs.h", "copies.h", "interop.h")), EMULATED / "extra.h"]
#: Calls that headers of before this version lack.
RECENT, RECENT_VERSION = DRIVER / "recent.h", 13050
#: Includes all of them.
INCLUDE = '#include "extra.h"'
INCLUDES = [f"-I{NATIVE}", f"-I{EMULATED}"]
#: Real names of types that our headers call by the name of their newest form only.
MANGLED = "__CUDA_API_VERSION_INTERNAL"


def toolkit(oldest: int = 13000, before: int = 10**6) -> Path:
    """The folder with the headers of a CUDA toolkit of such a version; skips the test where there is none."""
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *map(str, Path("/usr/local").glob("cuda-*"))]
    for root in roots:
        header = Path(root) / "include" / "cuda.h"
        if root and header.exists() and oldest <= version(header) < before:
            return header.parent
    pytest.skip(f"no CUDA toolkit of version {oldest // 1000}: there is no header to compare with")


def version(header: Path) -> int:
    found = re.search(r"#define CUDA_VERSION (\d+)", header.read_text())
    return int(found[1]) if found else 0


def text(paths: list[Path]) -> str:
    return re.sub(r"/\*.*?\*/", "", "".join(path.read_text() for path in paths), flags=re.DOTALL)


def declared(real: Path) -> list[str]:
    """Every symbol that our headers declare and a header of this version has."""
    names = []
    headers = CALLS + [RECENT] * (version(real / "cuda.h") >= RECENT_VERSION)
    for kind, name in re.findall(r"^CU_(CALL|PTSZ|PTDS)\((cu\w+)", text(headers), re.MULTILINE):
        names += [name] if kind == "CALL" else [name, f"{name}_{kind.lower()}"]
    return names


def compiled(source: str, directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    path = directory / "compare.c"
    path.write_text(source)
    command = ["cc", "-std=gnu11", "-Wall", "-Wno-deprecated-declarations", "-Werror", *flags, str(path)]
    return subprocess.run([*command, "-o", str(directory / "compare")], capture_output=True, text=True, check=False)


def prototypes(real: Path, own: str, directory: Path) -> str:
    """The compiler's complaint about our prototypes after the real ones, "" if they agree."""
    types = "#define CARPOOL_DRIVER_TYPES_H\n#define CARPOOL_STUB_EXTRA_TYPES_H\n"
    source = f"#define {MANGLED}\n#include <cuda.h>\n{types}{own}\nint main(void) {{ return 0; }}\n"
    return compiled(source, directory, *INCLUDES, f"-I{real}").stderr


def test_prototypes_agree(tmp_path: Path) -> None:
    assert prototypes(toolkit(), INCLUDE, tmp_path) == ""


def test_a_wrong_prototype_would_be_noticed(tmp_path: Path) -> None:
    assert "conflicting types" in prototypes(
        toolkit(), "CUresult cuMemAlloc_v2(CUdeviceptr *a, unsigned int b);", tmp_path
    )


def unknown(names: Sequence[str], include: str, directory: Path, *flags: str) -> str:
    """The compiler's complaint about names that these headers lack: such a name would agree with anything."""
    uses = "\n".join(f"  (void)sizeof(&{name});" for name in names)
    return compiled(f"{include}\nint main(void) {{\n{uses}\n  return 0;\n}}\n", directory, *flags).stderr


def test_every_call_exists(tmp_path: Path) -> None:
    names = declared(toolkit())
    assert unknown(names, f"#define {MANGLED}\n#include <cuda.h>", tmp_path, f"-I{toolkit()}") == ""
    assert len(names) > 250


def members(body: str) -> list[str]:
    """Names of the plain members of a structure's body; of nested ones only the group's name."""
    while (flat := re.sub(r"\{[^{}]*\}", "", body)) != body:
        body = flat
    declarations = [part.strip() for part in body.split(";") if part.strip()]
    names = [
        re.findall(r"(\w+)\s*(?:\[[^\]]*\])?\s*(?:,|$)", re.sub(r"^(struct|union)\s", "", part))
        for part in declarations
    ]
    return [name for group in names for name in group if name not in ("struct", "union")]


def questions() -> list[tuple[str, str]]:
    """(label, C expression) for every number that our headers fix."""
    source = text(TYPES)
    found = [(name, f"(long long){name}") for name in re.findall(r"\b(CUDA?_[A-Z0-9_a-z]+) =", source)]
    found += [(name, f"(long long)(intptr_t){name}") for name in re.findall(r"#define (CU_\w+) ", source)]
    pattern = r"typedef (struct|union) (\w+) \{(?:([^\n]*)\} \w+;|\n(.*?)\n\} \w+;)"
    for keyword, tag, line, lines in re.findall(pattern, source, re.DOTALL):
        found.append((tag, f"(long long)sizeof({keyword} {tag})"))
        for member in members(line + lines):
            found.append((f"{tag}.{member}", f"(long long)offsetof({keyword} {tag}, {member})"))
    return found


def answers(questions: list[tuple[str, str]], include: str, directory: Path, *flags: str) -> dict[str, int]:
    """What a program prints that includes these headers, by label."""
    lines = "\n".join(f'  printf("{label} %lld\\n", {expression});' for label, expression in questions)
    standard = "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>"
    source = f"{standard}\n{include}\nint main(void) {{\n{lines}\n  return 0;\n}}\n"
    result = compiled(source, directory, *flags)
    assert result.stderr == ""
    output = subprocess.run([str(directory / "compare")], capture_output=True, text=True, check=True).stdout
    return {label: int(value) for label, value in (line.split() for line in output.splitlines())}


def test_numbers_and_layouts_agree(tmp_path: Path) -> None:
    real = answers(questions(), "#include <cuda.h>", tmp_path, f"-I{toolkit()}")
    own = answers(questions(), INCLUDE, tmp_path, *INCLUDES)
    assert own == real
    assert {"CUDA_ERROR_ILLEGAL_STATE", "CUmemAllocationProp_st", "CUDA_MEMCPY3D_st.dstHeight"} <= own.keys()
