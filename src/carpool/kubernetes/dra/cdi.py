"""CDI files: what a container runtime gives to the containers of a claim, and the record of the answer to the kubelet.

A file is whole or not there, whenever the driver is killed; a new driver answers from the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from carpool.kubernetes.dra.claims import DRIVER, BadClaim, ResourceClaim, base_request
from carpool.kubernetes.v1beta1 import deviceplugin_pb2 as api

#: The first version of CDI that has annotations.
VERSION = "0.6.0"
KIND, RECORD = f"{DRIVER}/claim", f"{DRIVER}/record"
#: Runtimes read files with the ending .json only; a draft has another.
PREFIX, SUFFIX, DRAFT = f"{DRIVER}-claim_", ".json", ".draft"
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}")


class ClaimRecord(msgspec.Struct, frozen=True):
    """A prepared claim: who it is, what it was allocated (`ResourceClaim.digest`), and the answer to the kubelet."""

    namespace: str
    name: str
    uid: str
    digest: str
    request: str
    pool: str
    device: str
    cdi_devices: list[str]


class CdiDirectory:
    """The driver's files in the directory of container runtimes; other drivers' files are left alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def record(self, uid: str) -> ClaimRecord | None:
        """Return the record of a claim; None if there is none that can be read.  Raises BadClaim, OSError."""
        return _record(self._path(uid))

    def records(self) -> Iterator[ClaimRecord]:
        """Yield the record of each claim.  Raises OSError."""
        for path in sorted(self._directory.glob(f"{PREFIX}*{SUFFIX}")):
            if (record := _record(path)) is not None:
                yield record

    def write(self, record: ClaimRecord, given: api.ContainerAllocateResponse) -> None:
        """Keep a record, and what containers of its claim are given.  Raises BadClaim, OSError."""
        path = self._path(record.uid)
        draft = path.with_suffix(DRAFT)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(_content(record, given)))
        draft.replace(path)

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, if there is one.  Raises BadClaim, OSError."""
        self._path(uid).unlink(missing_ok=True)

    def clean(self) -> None:
        """Make the directory; remove what a killed driver has left half written, and what cannot be read."""
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        unreadable = (path for path in self._directory.glob(f"{PREFIX}*{SUFFIX}") if _record(path) is None)
        for path in (*self._directory.glob(f"{PREFIX}*{DRAFT}"), *unreadable):
            path.unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        if _UID.fullmatch(uid) is None:
            raise BadClaim(f"{uid!r} is not the uid of a claim")
        return self._directory / f"{PREFIX}{uid}{SUFFIX}"


def record_of(claim: ResourceClaim, node: str, given: api.ContainerAllocateResponse) -> ClaimRecord:
    """Make the record of a claim whose containers are given this.  Raises BadClaim."""
    about, result = claim.metadata, claim.result(node)
    assert result is not None
    devices = [f"{KIND}={about.uid}", *(device.name for device in given.cdi_devices)]
    whose = (about.namespace, about.name, about.uid, claim.digest)
    return ClaimRecord(*whose, base_request(result.request), result.pool, result.device, devices)


def _content(record: ClaimRecord, given: api.ContainerAllocateResponse) -> dict[str, Any]:
    mounts = [
        {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": ["rbind", "rprivate", "ro"]}
        for mount in given.mounts
    ]
    edits = {
        "env": [f"{name}={value}" for name, value in sorted(given.envs.items())],
        "mounts": mounts,
        "deviceNodes": [{"path": node.container_path, "permissions": node.permissions} for node in given.devices],
    }
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "annotations": {RECORD: msgspec.json.encode(record).decode()},
        "devices": [{"name": record.uid, "containerEdits": edits}],
    }


def _record(path: Path) -> ClaimRecord | None:
    """Read a record; None if the file is not one of ours."""
    try:
        content = msgspec.json.decode(path.read_bytes())
        return msgspec.json.decode(content["annotations"][RECORD], type=ClaimRecord)
    except (FileNotFoundError, msgspec.DecodeError, LookupError, TypeError):
        return None
