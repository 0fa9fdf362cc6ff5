"""Spawning shims, and telling them what to start."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from carpool.core.model import DeviceId
from carpool.daemon.jobs.files import create_directory, take_lock
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.shims.sessions import Session
from carpool.daemon.system.fd_limit import restore_file_limit
from carpool.devices.base import DeviceBackend
from carpool.protocol import session as messages
from carpool.protocol.paths import Home

#: A process without anything of Carpool in it.
_PLAIN = {"CARPOOL_DISABLE": "1"}
SHIM = Path(__file__).resolve().parents[2] / "runtime" / "shim" / "__main__.py"


@dataclass(frozen=True, slots=True)
class Starting:
    """What every job is started with.

    ``threads``: as many as PyTorch is to use, None: as it likes; ``environment``: of jobs on these devices, unless they
    say otherwise; ``log_limit``: bytes that are kept of the log of one attempt; ``core_dumps``: whether jobs may
    leave any.
    """

    home: Home
    devices: Mapping[DeviceId, DeviceBackend]
    threads: int | None
    environment: Callable[[Sequence[DeviceId]], Mapping[str, str]]
    log_limit: int
    core_dumps: bool


def spawn_shim(home: Home, job: JobRecord) -> subprocess.Popen[bytes] | None:
    """A new shim, which holds the job's lock; None while another one lives.  Raises OSError."""
    lock = take_lock(create_directory(home, job.id, job.owner, job.gid))
    if lock is None:
        return None
    try:
        numbers = map(str, (job.id, job.attempt, lock))
        command = [sys.executable, "-I", "-S", str(SHIM), str(home.root), *numbers, *_who(job)]
        shim = _popen(command, lock)
        restore_file_limit(shim.pid)
        return shim
    finally:
        os.close(lock)


def send_start(session: Session, job: JobRecord, starting: Starting, names: Sequence[DeviceId]) -> None:
    """Tell a shim to start the job on its devices.  The environment travels in a memfd: it may be larger than a packet.

    The job sees the GPUs among them only, its own first.
    """
    gpus = ",".join(device.uuid for name in names if (device := starting.devices[name]).uuid)
    env = {**starting.environment(names), **job.spec.env} | {"CARPOOL_DEVICES": ",".join(names)}
    env = env | _PLAIN | {"CUDA_VISIBLE_DEVICES": gpus} if job.by_checkpoint else env
    spec = messages.StartSpec(
        job.spec.argv, job.spec.cwd, env, starting.threads, gpus, starting.log_limit, starting.core_dumps
    )
    fd = os.memfd_create(f"carpool-start-{job.id}", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(msgspec.json.encode(spec))
        session.send(messages.Start(), [fd])
    finally:
        os.close(fd)


def _who(job: JobRecord) -> list[str]:
    """Whom the shim becomes as soon as it is loaded: our interpreter need not be readable for everybody."""
    if os.geteuid() != 0 or job.owner == 0:
        return []
    return [str(job.owner), str(job.gid), ",".join(map(str, groups_of(job.owner, job.gid)))]


def groups_of(uid: int, gid: int) -> list[int]:
    """The supplementary groups of a user; only ``gid`` for a uid without an account."""
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]


def _popen(command: list[str], lock: int) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        stdin=null,
        stdout=null,
        stderr=null,
        cwd="/",
        env={"LANG": "C.UTF-8"},
        pass_fds=(lock,),
        start_new_session=True,
    )
