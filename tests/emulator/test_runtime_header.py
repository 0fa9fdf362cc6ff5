"""Our declarations of the CUDA runtime are the real header's: names, numbers, layouts and prototypes.

Skipped where no CUDA toolkit is installed, which is the usual case.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.emulator.test_header import answers, compiled, members, text, toolkit, unknown
from tools.emulator.build import EMULATOR, NATIVE, RUNTIMES, exports

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
each_version = pytest.mark.parametrize("version", RUNTIMES)


def headers_of(version: int) -> Path:
    """Those of the newest version stand for later ones, too."""
    return toolkit(version * 1000, *([] if version == RUNTIMES[-1] else [(version + 1) * 1000]))


def prototypes(real: Path, own: str, directory: Path, version: int = RUNTIMES[-1]) -> str:
    """The compiler's complaint about our prototypes after the real ones, "" if they agree."""
    source = f"{HEADERS}\n#define EMULATOR_RUNTIME_TYPES_H\n{own}\nint main(void) {{ return 0; }}\n"
    return compiled(source, directory, *OWN, f"-I{real}", f"-DEMULATED_RUNTIME={version}").stderr


def exported(version: int) -> set[str]:
    return set(re.findall(r"^    (\w+);$", exports(version).read_text(), re.MULTILINE))


@each_version
def test_prototypes_agree(version: int, tmp_path: Path) -> None:
    assert prototypes(headers_of(version), '#include "runtime/runtime.h"', tmp_path, version) == ""


def test_a_wrong_prototype_would_be_noticed(tmp_path: Path) -> None:
    wrong = "cudaError_t cudaMalloc(void **memory, unsigned int bytes);"
    assert "conflicting types" in prototypes(toolkit(), wrong, tmp_path)


def test_every_exported_call_is_declared() -> None:
    declared = set(re.findall(r"\b(_*cuda[A-Z]\w+)\(", text([RUNTIME / "runtime.h"])))
    assert exported(12) | exported(13) == declared


@each_version
def test_every_call_exists(version: int, tmp_path: Path) -> None:
    names = [name for name in sorted(exported(version) - PROFILER) if not name.startswith(PRIVATE)]
    assert unknown(names, HEADERS, tmp_path, f"-I{headers_of(version)}") == ""


def types(version: int) -> str:
    return text([RUNTIME / "types.h", RUNTIME / f"layout_{version}.h"])


def numbers(version: int) -> list[str]:
    """Names of everything that our tables and enumerations give a number."""
    found = re.findall(r"\b(cuda\w+) =", types(version))
    found += re.findall(r"#define (cuda\w+) ", types(version))
    found += re.findall(r"^(?:ERROR|STICKY)\((\w+),", text([RUNTIME / "errors.def"]), re.MULTILINE)
    tables = text([RUNTIME / "properties.def", RUNTIME / f"properties_{version}.def"])
    return found + re.findall(r"^PROPERTY\([^,]+, (\w+),", tables, re.MULTILINE)


def questions(version: int) -> list[tuple[str, str]]:
    """(label, C expression) for every number that our headers fix."""
    found = [(name, f"(long long){name}") for name in numbers(version)]
    found += [(name, f"(long long)sizeof({name})") for name in ("cudaGraphEdgeData", "cudaLaunchAttribute")]
    pattern = r"^(?:typedef )?struct (\w+) \{(.*?)\} ?\w*;"
    for tag, body in re.findall(pattern, types(version), re.DOTALL | re.MULTILINE):
        name = tag if tag == "dim3" else f"struct {tag}"
        found.append((tag, f"(long long)sizeof({name})"))
        found += [(f"{tag}.{member}", f"(long long)offsetof({name}, {member})") for member in members(body)]
    return [(label, expression) for label, expression in found if not label.endswith(RESERVED)]


@each_version
def test_numbers_and_layouts_agree(version: int, tmp_path: Path) -> None:
    asked, chosen = questions(version), f"-DEMULATED_RUNTIME={version}"
    real = answers(asked, HEADERS, tmp_path, f"-I{headers_of(version)}", chosen)
    own = answers(asked, '#include "runtime/types.h"', tmp_path, *OWN, chosen)
    assert own == real
    assert {"cudaErrorIllegalAddress", "cudaDevAttrL2CacheSize", "cudaDeviceProp.l2CacheSize", "dim3.z"} <= own.keys()
    assert {"cudaLaunchConfig_st.attrs", "cudaIpcMemHandle_st", "cudaInvalidDeviceId"} <= own.keys()
