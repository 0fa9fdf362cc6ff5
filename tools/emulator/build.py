"""Compile the emulated GPU's libraries: ``python3 tools/emulator/build.py DIRECTORY [--sanitize KIND] [NAME...]``.

Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

EMULATOR = Path(__file__).resolve().parent
ROOT = EMULATOR.parents[1]
NATIVE = ROOT / "src" / "native"
FLAGS = [
    "-std=gnu11",
    "-O1",  # they compute little, and are compiled before every run of the tests
    "-g",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Werror",
]
# -Bsymbolic: like the real one, the driver calls its own functions even where a preloaded library has the same names.
# nodelete: its threads outlive a dlclose.
DRIVER = ["-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-soname,libcuda.so.1"]

LIBRARIES = ["driver", "runtime", "nvml"]
#: Versions of the CUDA runtime: PyTorch's wheels up to 2.10 were built with 12, later ones with 13.
RUNTIMES = (12, 13)


def compile_library(output: Path, sources: Iterable[Path], *options: str) -> Path:
    """A shared library of C files, complete or not there at all.  Raises RuntimeError with the compiler's complaint."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    includes = [f"-I{NATIVE}", f"-I{EMULATOR}"]
    command = [*compiler, *FLAGS, *map(str, sources), *includes, *options, "-lpthread", "-o", str(partial)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{output.name} of the emulated GPU could not be compiled:\n{result.stderr.strip()}")
    return partial.replace(output)


def sources_of(folder: str) -> list[Path]:
    return sorted((EMULATOR / folder).glob("*.c"))


def build_driver(directory: Path, sanitize: str | None = None) -> Path:
    """Build ``libcuda.so.1`` (and the link ``libcuda.so``) in ``directory`` and return its path.

    ``sanitize`` is a value of the compiler's ``-fsanitize``; the program that loads the library needs the same one.
    Raises RuntimeError with the compiler's complaint.
    """
    sanitizer = [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"] if sanitize else []
    output = compile_library(directory / "libcuda.so.1", sources_of("driver"), *sanitizer, *DRIVER)
    link = directory / "libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to(output.name)
    return output


def exports(version: int) -> Path:
    """The list of what a version of the runtime exports."""
    return EMULATOR / "runtime" / f"libcudart.{version}.map"


def build_runtime(directory: Path, sanitize: str | None = None, version: int = RUNTIMES[-1]) -> Path:
    """Build ``libcudart.so.VERSION`` over the driver that :func:`build_driver` has built in the same directory.

    It exports what PyTorch's libraries import and nothing else.  Raises RuntimeError with the compiler's complaint.
    """
    sanitizer = [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"] if sanitize else []
    name = f"libcudart.so.{version}"
    linking = [f"-Wl,--version-script={exports(version)}", "-Wl,--no-undefined", f"-Wl,-soname,{name}"]
    driver = [f"-L{directory}", "-l:libcuda.so.1", f"-DEMULATED_RUNTIME={version}"]
    return compile_library(directory / name, sources_of("runtime"), *sanitizer, *driver, *linking)


def build_nvml(directory: Path) -> Path:
    """``libnvidia-ml.so.1`` in the directory, which is what LD_LIBRARY_PATH should name.

    It has no SONAME, so that a process that has loaded it by its path can still load the real one.
    """
    return compile_library(directory / "libnvidia-ml.so.1", sources_of("nvml"))


def build_libraries(torch_lib: Path, directory: Path) -> list[Path]:
    """Build what the PyTorch in ``torch_lib`` (its ``torch/lib``) needs of NVIDIA's libraries above the runtime.

    ``directory`` has the driver already (``build_driver``).  Raises FileNotFoundError or ValueError for a folder
    without a CUDA build of PyTorch, and RuntimeError with the compiler's complaint.
    """
    # Not at the top: as a script this file is no part of a package.
    sys.path[:0] = [] if __package__ else [str(ROOT)]
    from tools.emulator.libraries import generate, wheel

    common = generate.definitions(wheel.versions(torch_lib))
    common += [f"-I{EMULATOR}", f"-I{EMULATOR / 'libraries'}", "-Wno-unused-parameter", str(directory / "libcuda.so.1")]
    built = []
    with tempfile.TemporaryDirectory() as generated:
        for soname, imports in sorted(wheel.wanted(torch_lib).items()):
            sources, options = generate.write_library(soname, imports, Path(generated))
            built.append(compile_library(directory / soname, sources, *common, *options, "-Wl,-z,defs"))
    return built


def build_all(directory: Path, torch_lib: Path) -> None:
    """Everything that the PyTorch in ``torch_lib`` needs.  Raises as the others do."""
    from tools.emulator.libraries import wheel

    build_driver(directory)
    build_runtime(directory, version=wheel.runtime(torch_lib))
    build_nvml(directory)
    build_libraries(torch_lib, directory)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 tools/emulator/build.py", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sanitize", help="of the driver and the runtime: address, undefined, or both with a comma")
    parser.add_argument("libraries", nargs="*", choices=[*LIBRARIES, "all"], default="all")
    options = parser.parse_intermixed_args()
    libraries = LIBRARIES if "all" in options.libraries else options.libraries
    if "driver" in libraries:
        print(build_driver(options.directory, options.sanitize))
    if "runtime" in libraries:
        print(build_runtime(options.directory, options.sanitize))
    if "nvml" in libraries:
        print(build_nvml(options.directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
