"""Docker and Podman, each with all of its state in one directory, for containers whose root is nothing but mounts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.containers.bundle import IDS, make_root
from tests.live import PATIENCE_S

#: Those of the machine may be higher than a process may set.
LIMITS = ("--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000")
RUN = ("run", "--rm", "--network", "none", *LIMITS)


class Podman:
    """Without a service.  The container's root is mapped to ``host_uid``."""

    OPTIONS = ("--podman",)

    def __init__(self, directory: Path, host_uid: int) -> None:
        """``directory``: its path is short, and other users may pass through it."""
        skip_without("podman")
        self._directory, self._uid, self._group = directory, host_uid, _group_name()
        self._root = _root_of(directory, host_uid)

    def run(self, arguments: Sequence[str], words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A container with these arguments of `podman run`, to its end."""
        state = [word for name in ("root", "runroot", "tmpdir") for word in (f"--{name}", str(self._directory / name))]
        engine = ["podman", *state, "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        maps = [f"--{kind}=0:{self._uid}:{IDS}" for kind in ("uidmap", "gidmap")]
        own = [*RUN, *maps, f"--cgroup-parent=/{self._group}"]
        return _done([*engine, *own, *arguments, "--rootfs", str(self._root), *words])

    def close(self) -> None:
        """Nothing runs after `run`."""
        _remove_groups(self._group)


class Docker:
    """With a service of its own.  The container's root is that of this machine, ``host_uid`` 0."""

    OPTIONS = ()

    def __init__(self, directory: Path, host_uid: int) -> None:
        """Once the service answers."""
        skip_without("dockerd")
        assert host_uid == 0
        self._socket, self._group = f"unix://{directory}/docker.sock", _group_name()
        self._log = (directory / "log").open("wb")
        self._service = self._start(directory)
        root = _root_of(directory, host_uid)
        with tarfile.open(directory / "root.tar", "w") as archive:
            archive.add(root, ".")
        _done(["docker", "-H", self._socket, "import", str(directory / "root.tar"), "empty"])

    def _start(self, directory: Path) -> subprocess.Popen[bytes]:
        """It says that it is ready as systemd wants to be told."""
        options = [f"--{name}-root={directory / name}" for name in ("data", "exec")]
        options += ["-H", self._socket, "--pidfile", str(directory / "pid"), "--storage-driver=vfs"]
        command = ["dockerd", *options, "--iptables=false", "--bridge=none", f"--cgroup-parent=/{self._group}"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(directory / "ready"))
            ready.settimeout(PATIENCE_S)
            env = os.environ | {"NOTIFY_SOCKET": str(directory / "ready")}
            service = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
            while b"READY=1" not in ready.recv(4096):
                pass
        return service

    def run(self, arguments: Sequence[str], words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """A container with these arguments of `docker run`, to its end."""
        return _done(["docker", "-H", self._socket, *RUN, *arguments, "empty", *words])

    def close(self) -> None:
        """End the service, and its containerd."""
        self._service.terminate()
        self._service.wait(PATIENCE_S)
        self._log.close()
        _remove_groups(self._group)


def skip_without(program: str) -> None:
    """Skip a test where the engine is not there."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (Debian: apt-get install podman docker.io)")


def _root_of(directory: Path, owner: int) -> Path:
    """With a directory for the files that engines mount."""
    root = make_root(directory, owner)
    (root / "etc").mkdir()
    os.chown(root / "etc", owner, owner)
    return root


def _done(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done


def _group_name() -> str:
    return f"cp-tests-{uuid.uuid4().hex}"


def _remove_groups(name: str) -> None:
    """The control groups of this name, in each hierarchy, which engines leave there."""
    for group in sorted(Path("/sys/fs/cgroup").glob(f"**/{name}/**/"), reverse=True):
        with suppress(OSError):
            group.rmdir()
