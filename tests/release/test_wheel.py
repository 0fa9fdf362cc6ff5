"""The wheel of `make wheel`: for old systems, and for machines without a compiler."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.bare_interpreter import bare_interpreter
from tools.release.problem import Problem, run

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "carpool/_native/libcarpool.so"
STEPS = 20
TRAIN = f"""
import json, shutil, sys
import torch

model = torch.nn.Linear(256, 256)
optimizer = torch.optim.Adam(model.parameters())
for _ in range({STEPS}):
    optimizer.zero_grad()
    model(torch.ones(8, 256)).sum().backward()
    optimizer.step()
with open("out.json", "w") as out:
    json.dump({{"python": sys.executable, "compiler": shutil.which("cc") or shutil.which("gcc")}}, out)
"""
#: All of them need the wheel, which takes half a minute to build.
pytestmark = pytest.mark.nightly(
    "builds a wheel: half a minute",
    stays="tests/release/test_install.py::test_no_compiler_is_one_line",
)


@pytest.fixture(scope="module")
def wheel(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    return Path(run([python, "-m", "tools.release.wheel", out], cwd=ROOT).strip())


def newest_glibc(library: Path) -> tuple[int, int]:
    """Of the versions of its symbols."""
    if shutil.which("objdump") is None:
        pytest.skip("not installed: objdump (Debian: binutils)")
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", run(["objdump", "-T", library]))
    return max((int(major), int(minor)) for major, minor in found)


def test_no_symbol_is_newer_than_its_name_says(wheel: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"carpool-[\d.]+-py3-none-.*\bmanylinux_2_17_\w+\.whl", wheel.name)
    library = Path(zipfile.ZipFile(wheel).extract(LIBRARY, tmp_path))
    assert (2, 0) < newest_glibc(library) <= (2, 17)


def test_the_library_does_not_tell_where_it_was_built(wheel: Path) -> None:
    """Else the same source would make another wheel elsewhere."""
    library = zipfile.ZipFile(wheel).read(LIBRARY)
    assert b"memory" in library  # messages are readable
    for place in (ROOT, Path(sys.prefix), Path(tempfile.gettempdir())):
        assert os.fsencode(place / "") not in library


def test_a_newer_symbol_is_refused(wheel: Path, python: Path, tmp_path: Path) -> None:
    """With the checkout's library, which this machine's compiler has made."""
    ours = ROOT / "src" / LIBRARY
    if newest_glibc(ours) <= (2, 17):
        pytest.skip("this machine's own glibc is as old")
    newer = tmp_path / f"{wheel.name.rsplit('-', 1)[0]}-linux_{os.uname().machine}.whl"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(newer, "w") as new:
        for name in old.namelist():
            new.writestr(name, ours.read_bytes() if name == LIBRARY else old.read(name))
    program = (
        "import os, sys; from tools.release import manylinux as m; "
        "m.checked(*map(m.Path, sys.argv[1:]), dict(os.environ))"
    )
    with pytest.raises(Problem, match=r"manylinux_2_17_.* because of the presence of too-recent versioned symbols"):
        run([python, "-c", program, newer, tmp_path / "out"], cwd=ROOT)


# Installed where there is no compiler


class Installed:
    """An environment with the wheel and what the wheel asks for, and nothing else on its path."""

    def __init__(self, wheel: Path, directory: Path) -> None:
        self.python = Path(bare_interpreter(directory / "venv", *needed(wheel)))
        self.directory = directory
        self.env = {"PATH": str(self.python.parent), "CARPOOL_HOME": str(directory / "home"), "HOME": str(directory)}
        assert not any(shutil.which(name, path=self.env["PATH"]) for name in ("cc", "gcc", "clang", "make"))
        self._pip("install", "--no-index", "--no-deps", str(wheel))
        self._pip("check")

    def _pip(self, *arguments: str) -> None:
        run([sys.executable, "-m", "pip", "--python", self.python, *arguments], env=self.env)

    def carpool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python.parent / "carpool"), *arguments]
        options = {"env": self.env, "cwd": self.directory, "timeout": 240}
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def needed(wheel: Path) -> list[str]:
    """What the wheel itself says, without extras."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        asked = email.message_from_bytes(content.read(name)).get_all("Requires-Dist", [])
    wanted = map(Requirement, asked)
    return [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = Installed(wheel, tmp_path_factory.mktemp("i"))
    yield place
    stopped = place.carpool("down", "--stop-jobs")
    assert stopped.returncode == 0, stopped.stderr


def test_a_job_with_the_torch_of_another_environment(installed: Installed) -> None:
    (installed.directory / "train.py").write_text(TRAIN)
    up = installed.carpool("up", "--device", "host:256MiB")
    assert up.returncode == 0, up.stderr
    done = installed.carpool("run", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    seen = json.loads((installed.directory / "out.json").read_text())
    assert seen == {"python": sys.executable, "compiler": None}
    shown = json.loads(installed.carpool("show", "1", "--json").stdout)
    assert shown["iterations"] == STEPS, shown  # the hooks of the wheel have counted them


def test_the_machine_is_found_to_be_fit(installed: Installed) -> None:
    found = json.loads(installed.carpool("doctor", "--json").stdout)["checks"]
    (library,) = (check for check in found if check["name"] == "libcarpool")
    assert library["ok"] and str(installed.directory) in library["found"]


def test_what_an_extra_is_for_names_it(installed: Installed) -> None:
    done = installed.carpool("simulate", "--generate", "poisson:jobs=5", "--report", "report.html")
    assert done.returncode == 1
    assert "-m pip install " in done.stderr and ".whl[report]" in done.stderr and "Traceback" not in done.stderr
    assert not (installed.directory / "report.html").exists()
