"""dlsym and dlvsym answer what they answer without the library, but for calls of the driver that have a wrapper."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.arbiter import LIBRARY

SOURCES = Path(__file__).with_name("dlsym")
VERSIONS = "V1 { }; V2 { }; libcudart.so.12 { };"
HOOKED = {"cuInit", "cuMemAlloc_v2", "cuInit@V1"}


def compiled(place: Path, who: str, *arguments: str | Path) -> Path:
    macros = [f"-DWHO={who}", f"-D{who.upper()}"]
    command = ["cc", "-O1", "-Wall", "-Werror", *macros, SOURCES / "asker.c", *arguments, f"-L{place}"]
    subprocess.run([*command, "-Wl,--no-as-needed", "-o", place / f"lib{who}.so"], check=True)
    return place / f"lib{who}.so"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, stub_driver: Path) -> Path:
    """A program, a plugin with two libraries of its own, one of which needs the driver, and a library alone."""
    place = tmp_path_factory.mktemp("dlsym")
    (place / "versions").write_text(VERSIONS)
    library, parts = ("-shared", "-fPIC"), str(SOURCES / "parts.c")
    driver = [stub_driver, f"-Wl,-rpath,{stub_driver.parent}"]
    compiled(place, "dep", *library, parts, f"-Wl,--version-script={place / 'versions'}", *driver)
    compiled(place, "beside", *library)
    needed = ("-Wl,--no-as-needed", place / "libbeside.so", place / "libdep.so")
    compiled(place, "plugin", *library, parts, *needed, *driver)
    compiled(place, "lonely", *library)
    compiled(place, "interposer", *library, parts)
    compiled(place, "program", "-DPROGRAM").rename(place / "program")
    return place


def answers(place: Path, preload: list[Path], stub_driver: Path, linked: bool = False) -> list[str]:
    """``linked``: the driver is in everybody's scope."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CARPOOL_", "LD_"))}
    files = [*preload, *([stub_driver] if linked else [])]
    plain |= {"LD_PRELOAD": ":".join(map(str, files)), "LD_LIBRARY_PATH": f"{place}:{stub_driver.parent}"}
    output = subprocess.run([place / "program"], env=plain, capture_output=True, text=True, check=True)
    assert not output.stderr
    return output.stdout.splitlines()


def gated(line: str) -> str:
    """The answer with the library: a wrapper where the driver's own call was, or the runtime's that is linked."""
    who, how, name, where = line.split()
    ours = (name in HOOKED and where == "libcuda.so.1") or (how, name) == ("linked", "cudaMalloc")
    return f"{who} {how} {name} {'libcarpool.so' if ours else where}"


@pytest.mark.parametrize("linked", [False, True], ids=["driver of the plugin", "driver of the program"])
@pytest.mark.parametrize("first", [False, True], ids=["interposer last", "interposer first"])
def test_every_caller_gets_the_answers_of_its_own_scope(
    place: Path, stub_driver: Path, first: bool, linked: bool
) -> None:
    interposer = place / "libinterposer.so"
    bare = answers(place, [interposer], stub_driver, linked)
    preload = [interposer, LIBRARY] if first else [LIBRARY, interposer]
    assert answers(place, preload, stub_driver, linked) == [gated(line) for line in bare]
    found = {tuple(line.split()[:3]) for line in bare if not line.endswith(" NULL")}
    assert {("plugin", "default", "curl_x"), ("plugin", "default", "twice@V1")} <= found
    assert ("beside", "default", "cuInit") in found
    assert (("lonely", "default", "cuInit") in found) == (("interposer", "next", "cuMemAlloc_v2") in found) == linked
