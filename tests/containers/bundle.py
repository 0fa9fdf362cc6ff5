"""What runc makes a container of: its root file system and config.json, as `carpool docker-args` and Docker would.

The root file system has nothing but mounts: /usr of this machine, the Python of these tests, what the arguments say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
#: In no package's way: directories of a container's root that are links to those of /usr.
LINKS = ("bin", "lib", "lib64", "sbin")
IDS = 65536


@dataclass(frozen=True)
class Bundle:
    """``host_uid``: of the container's root, with a user namespace; None: root without one."""

    directory: Path
    host_uid: int | None
    id: str = field(default_factory=lambda: f"cp-tests-{uuid.uuid4().hex}")  # also of its control groups

    def make(self, words: Sequence[str], variables: Mapping[str, str], mounts: Iterable[dict[str, Any]]) -> None:
        """Raises OSError, CalledProcessError."""
        root = make_root(self.directory, self.host_uid or 0)
        for directory in (self.directory, root):
            directory.chmod(0o755)
        subprocess.run(["runc", "spec", "--bundle", str(self.directory)], check=True)
        path = self.directory / "config.json"
        spec = json.loads(path.read_text())
        environment = [f"{name}={value}" for name, value in variables.items()]
        files = [bind(path, path) for path in visible_paths()]
        spec["process"] |= {"terminal": False, "args": list(words), "env": environment, "rlimits": []}
        spec["root"]["readonly"] = False
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"] + [*files, *mounts]
        spec["linux"] |= {"resources": {}, "cgroupsPath": f"/{self.id}"} | self._users(spec["linux"]["namespaces"])
        path.write_text(json.dumps(spec))

    def _users(self, namespaces: list[dict[str, str]]) -> dict[str, Any]:
        if self.host_uid is None:
            return {}
        mapping = [{"containerID": 0, "hostID": self.host_uid, "size": IDS}]
        return {"namespaces": [*namespaces, {"type": "user"}], "uidMappings": mapping, "gidMappings": mapping}


def make_root(directory: Path, owner: int) -> Path:
    """A root file system there, in which everything is to be mounted; ``owner``: of the container's root, outside."""
    root = directory / "rootfs"
    root.mkdir(parents=True)
    for name in LINKS:
        (root / name).symlink_to(f"usr/{name}")
    os.chown(root, owner, owner)
    return root


def bind(source: str | Path, target: str | Path, *, writable: bool = False) -> dict[str, Any]:
    """A mount of a file or directory, as in config.json."""
    options = ["rbind", "rw" if writable else "ro"]
    return {"type": "bind", "source": str(source), "destination": str(target), "options": options}


def visible_paths() -> list[str]:
    """PyTorch and the scripts, and nothing of Carpool."""
    prefixes = (prefix for prefix in (sys.base_prefix, sys.prefix) if not prefix.startswith("/usr"))
    return [*dict.fromkeys(["/usr", *prefixes, str(TESTS / "workloads"), str(TESTS / "lean")])]


def of_docker(arguments: Sequence[str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The variables and mounts that arguments of `docker run` mean."""
    variables, mounts = {}, []
    for option, value in zip(arguments[::2], arguments[1::2], strict=True):
        if option == "--env":
            variables.update([value.split("=", 1)])
            continue
        fields = dict(field.partition("=")[::2] for field in value.split(","))
        assert (option, fields.keys()) == ("--mount", {"type", "source", "target", "readonly"}), (option, value)
        mounts.append(bind(fields["source"], fields["target"]))
    return variables, mounts
