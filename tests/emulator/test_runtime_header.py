"""Our declarations of the CUDA runtime are the real header's: names, numbers, layouts and prototypes.

Skipped where no CUDA toolkit is installed, which is the usual case.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from emulator.build import EMULATOR, EXPORTS, NATIVE
from tests.emulator.test_header import compiled, members, text, toolkit

RUNTIME = EMULATOR / "runtime"
OWN = [f"-I{NATIVE}", f"-I{EMULATOR}"]
#: Calls between compiled code and the runtime have no declaration that a C compiler could read.
PRIVATE = "__cuda"
#: Later minor versions take their new members from here.
RESERVED = ".reserved"
HEADERS = (
    "#include <cuda_runtime_api.h>\n#if __has_include(<cuda_profiler_api.h>)\n#include <cuda_profiler_api.h>\n#endif"
)
PROFILER = {"cudaProfilerStart", "cudaProfilerStop"}


def prototypes(real: Path, own: str, directory: Path) -> str:
    """The compiler's complaint about our prototypes after the real ones, "" if they agree."""
    source = f"{HEADERS}\n#define EMULATOR_RUNTIME_TYPES_H\n{own}\nint main(void) {{ return 0; }}\n"
    return compiled(source, directory, *OWN, f"-I{real}").stderr


def exported() -> set[str]:
    return set(re.findall(r"^    (\w+);$", EXPORTS.read_text(), re.MULTILINE))


def test_prototypes_agree(tmp_path: Path) -> None:
    assert prototypes(toolkit(), '#include "runtime/runtime.h"', tmp_path) == ""


def test_a_wrong_prototype_would_be_noticed(tmp_path: Path) -> None:
    wrong = "cudaError_t cudaMalloc(void **memory, unsigned int bytes);"
    assert "conflicting types" in prototypes(toolkit(), wrong, tmp_path)


def test_every_exported_call_is_declared() -> None:
    assert exported() == set(re.findall(r"\b(_*cuda[A-Z]\w+)\(", text([RUNTIME / "runtime.h"])))


def test_every_call_exists(tmp_path: Path) -> None:
    """A name that the real header lacks would agree with anything."""
    names = [name for name in sorted(exported() - PROFILER) if not name.startswith(PRIVATE)]
    uses = "\n".join(f"  (void)sizeof(&{name});" for name in names)
    source = f"{HEADERS}\nint main(void) {{\n{uses}\n  return 0;\n}}\n"
    assert compiled(source, tmp_path, f"-I{toolkit()}").stderr == ""


def numbers() -> list[str]:
    """Names of everything that our tables and enumerations give a number."""
    found = re.findall(r"\b(cuda\w+) =", text([RUNTIME / "types.h"]))
    found += re.findall(r"#define (cuda\w+) ", text([RUNTIME / "types.h"]))
    found += re.findall(r"^(?:ERROR|STICKY)\((\w+),", text([RUNTIME / "errors.def"]), re.MULTILINE)
    return found + re.findall(r"^PROPERTY\([^,]+, (\w+),", text([RUNTIME / "properties.def"]), re.MULTILINE)


def questions() -> list[tuple[str, str]]:
    """(label, C expression) for every number that our headers fix."""
    found = [(name, f"(long long){name}") for name in numbers()]
    found += [(name, f"(long long)sizeof({name})") for name in ("cudaGraphEdgeData", "cudaLaunchAttribute")]
    pattern = r"^(?:typedef )?struct (\w+) \{(.*?)\} ?\w*;"
    for tag, body in re.findall(pattern, text([RUNTIME / "types.h"]), re.DOTALL | re.MULTILINE):
        name = tag if tag == "dim3" else f"struct {tag}"
        found.append((tag, f"(long long)sizeof({name})"))
        found += [(f"{tag}.{member}", f"(long long)offsetof({name}, {member})") for member in members(body)]
    return [(label, expression) for label, expression in found if not label.endswith(RESERVED)]


def answers(include: str, directory: Path, *flags: str) -> dict[str, int]:
    lines = "\n".join(f'  printf("{label} %lld\\n", {expression});' for label, expression in questions())
    standard = "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>"
    source = f"{standard}\n{include}\nint main(void) {{\n{lines}\n  return 0;\n}}\n"
    result = compiled(source, directory, *flags)
    assert result.stderr == ""
    output = subprocess.run([str(directory / "compare")], capture_output=True, text=True, check=True).stdout
    return {label: int(value) for label, value in (line.split() for line in output.splitlines())}


def test_numbers_and_layouts_agree(tmp_path: Path) -> None:
    real = answers(HEADERS, tmp_path, f"-I{toolkit()}")
    own = answers('#include "runtime/types.h"', tmp_path, *OWN)
    assert own == real
    assert {"cudaErrorIllegalAddress", "cudaDevAttrL2CacheSize", "cudaDeviceProp.l2CacheSize", "dim3.z"} <= own.keys()
    assert {"cudaLaunchConfig_st.attrs", "cudaIpcMemHandle_st", "cudaInvalidDeviceId"} <= own.keys()
