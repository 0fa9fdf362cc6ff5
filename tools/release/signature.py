"""Checksums of all files of a release, signed with an SSH key."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from tools.release.problem import Problem, run

#: What the signature is for: one for another purpose, such as a commit's, does not count.
NAMESPACE = "carpool-release"


def sign(files: Iterable[Path], key: Path, out: Path) -> list[Path]:
    """``SHA256SUMS`` and its signature.  Raises Problem."""
    if not key.is_file():
        raise Problem(
            f"there is no key {key}: give --key the file of an SSH key, or of its public half if an agent has it"
        )
    sums = out / "SHA256SUMS"
    lines = sorted((file.name, sha256(file.read_bytes()).hexdigest()) for file in files)
    sums.write_text("".join(f"{digest}  {name}\n" for name, digest in lines))
    run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE, sums])
    return [sums, sums.with_suffix(".sig")]
