"""The folders of ``src/native/``: each says what it holds and which others it may include, and keeps to that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.native.arbiter import ROOT

sys.path.insert(0, str(ROOT / "src" / "native"))
import build  # found by the line above

NATIVE = ROOT / "src" / "native"
FOLDERS = ("abi", *build.FOLDERS, "cuda/driver")
HEAD = re.compile(r"/\* Folder ([\w/]+)/: .*?May include: (.*?)(?: \(.*?\))?\. \*/", re.DOTALL)
INCLUDE = re.compile(r'^#include "([\w/]+)/[\w.]+"', re.MULTILINE)
#: Names of ours.  Others are libc's, some of which the library defines too, and every folder may call.
OWN = re.compile(r"cp_\w+")


def sources(folder: str) -> list[Path]:
    return [path for path in sorted((NATIVE / folder).iterdir()) if path.suffix in (".c", ".h")]


def allowed() -> dict[str, set[str]]:
    """Folder -> the others that the comment at the head of one of its files allows."""
    heads = [match for folder in FOLDERS for path in sources(folder) if (match := HEAD.match(path.read_text()))]
    assert sorted(match[1] for match in heads) == sorted(FOLDERS), "one head for each folder"
    return {match[1]: set(match[2].split(", ")) - {"nothing"} for match in heads}


def included(folder: str) -> set[str]:
    found = {name for path in sources(folder) for name in INCLUDE.findall(path.read_text())}
    return found - {folder}


def test_folders_include_what_their_heads_allow_and_nothing_else() -> None:
    assert {folder: included(folder) for folder in FOLDERS} == allowed()


def symbols(folders: list[str], output: Path, option: str) -> set[str]:
    """Names of ours that objects of these folders define (``--defined-only``) or take from elsewhere."""
    if not output.exists():
        files = [str(path) for folder in folders for path in sources(folder) if path.suffix == ".c"]
        command = [*build.compiler(), "-std=gnu11", "-fPIC", "-fvisibility=hidden", f"-I{NATIVE}", "-r", *files]
        subprocess.run([*command, "-o", str(output)], check=True)
    lines = subprocess.check_output(["nm", "--extern-only", option, str(output)], text=True).splitlines()
    return {name for line in lines if OWN.fullmatch(name := line.split()[-1])}


def test_only_the_table_of_backends_leads_from_elsewhere_into_cuda(tmp_path: Path) -> None:
    ours = [folder for folder in build.FOLDERS if folder.startswith("cuda")]
    others = [folder for folder in build.FOLDERS if folder not in ours]
    theirs = symbols(ours, tmp_path / "cuda.o", "--defined-only")
    needed = symbols(others, tmp_path / "others.o", "--undefined-only")
    assert needed & theirs == {"cp_backends"}
