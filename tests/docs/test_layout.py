"""Promises about imports that a static check does not see, and about versions that are written in two places."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import carpool

FRAMEWORKS = ("torch", "numpy")


def loaded(python: str, statement: str) -> set[str]:
    """Top-level names of all modules that are there after a statement in a fresh interpreter."""
    code = f"import sys; {statement}; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.usefixtures("whole_torch")  # `tests/lean` is itself a module named torch
@pytest.mark.parametrize(
    "module",
    ["carpool", "carpool.cli.main", "carpool.daemon.__main__", "carpool.core.machine", "carpool.serve.http.endpoint"],
)
def test_no_framework_outside_jobs(python: str, module: str) -> None:
    assert loaded(python, f"import {module}").isdisjoint(FRAMEWORKS)


def test_the_core_loads_neither_the_loop_nor_a_socket(python: str) -> None:
    fresh = loaded(python, "pass")
    assert (loaded(python, "import carpool.core.machine") - fresh).isdisjoint(
        {"asyncio", "socket", "sqlite3", "aiohttp"}
    )


def test_the_command_line_does_not_load_the_server(python: str) -> None:
    assert loaded(
        python, "import carpool.cli.main, carpool.cli.commands.jobs.ls, carpool.cli.commands.jobs.submit"
    ).isdisjoint({"aiohttp", "asyncio"})


def test_one_version_everywhere(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert carpool.__version__ == project["version"]
    assert f"## {project['version']}" in (root / "CHANGELOG.md").read_text()


def asked_for(root: Path) -> list[Requirement]:
    """By the package and by its extras; the last of these names the others."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    everything = Requirement(*extras.pop("all"))
    assert (everything.name, everything.extras) == (project["name"], set(extras))
    return [Requirement(need) for needs in (project["dependencies"], *extras.values()) for need in needs]


def test_the_lock_satisfies_what_the_package_asks_for(root: Path) -> None:
    locked = dict(exact(root, "carpool.txt", "dev.txt"))
    for need in asked_for(root):
        assert locked[need.name] in need.specifier, need


def test_users_may_have_newer_versions(root: Path) -> None:
    assert {bound.operator for need in asked_for(root) for bound in need.specifier} == {">="}


def exact(root: Path, *names: str) -> set[tuple[str, str]]:
    """Packages and versions, as indexes spell them."""
    text = "".join((root / "requirements" / name).read_text() for name in names)
    found = re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE)
    return {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in found}


def test_all_that_is_installed_but_pytorch_has_hashes(root: Path) -> None:
    """`make lock` writes these files anew."""
    everything = exact(root, "carpool.txt", "dev.txt", "torch.txt")
    assert {name for name, _ in everything ^ exact(root, "dev.lock")} == {"torch"}
    for kind in ("carpool", "engines", "ray", "release"):
        assert exact(root, f"{kind}.txt") == exact(root, f"{kind}.lock")
    for name in ("carpool.lock", "dev.lock", "engines.lock", "ray.lock", "release.lock"):
        entries = re.split(r"\n(?=\w)", (root / "requirements" / name).read_text())[1:]
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_lock_is_complete(root: Path) -> None:
    """Whatever a locked package needs is locked too; environment markers are left to pip."""
    text = "".join((root / "requirements" / name).read_text() for name in ("carpool.txt", "dev.txt", "torch.txt"))
    locked = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    for package in sorted(locked):
        needs = [need for need in requires(package) or [] if ";" not in need]
        names = {re.split(r"[\s<>=!~\[(]", need)[0].lower().replace("_", "-") for need in needs}
        assert names <= locked, f"{package} needs {sorted(names - locked)}"
