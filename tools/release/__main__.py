"""``python -m tools.release TAG --key FILE``: build, list and sign what a tag releases; `make release` sets it up."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.release.archives import build_archives
from tools.release.problem import Problem
from tools.release.sbom import write_sbom
from tools.release.signature import sign
from tools.release.source import check_out

ROOT = Path(__file__).resolve().parents[2]


def parse_arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("tag", help="v and the version; the checkout may be elsewhere")
    parser.add_argument("--key", type=Path, required=True, help="of SSH, to sign with")
    parser.add_argument("--repository", type=Path, default=ROOT, help="whose tag it is")
    parser.add_argument("--out", type=Path, help="a directory that does not exist yet; dist/TAG if not given")
    return parser.parse_args()


def make(tag: str, key: Path, repository: Path, out: Path) -> list[Path]:
    """The files of the release, in ``out``.  Raises Problem."""
    if out.exists():
        raise Problem(f"{out} exists already: remove it, or choose another --out")
    with TemporaryDirectory() as directory:
        source, built = check_out(repository, tag, Path(directory) / "carpool"), Path(directory) / "built"
        built.mkdir()
        archives = build_archives(source.root, source.time, built)
        files = [*archives, write_sbom(source, archives, built)]
        files += sign(files, key, built)
        shutil.copytree(built, out)
    return [out / file.name for file in files]


def main() -> int:
    """The exit status."""
    options = parse_arguments()
    out = options.out or ROOT / "dist" / options.tag
    try:
        files = make(options.tag, options.key, options.repository, out)
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    print("\n".join(map(str, files)))
    print("nothing has been uploaded; docs/releases.md says how to verify and publish these files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
