"""What a container runtime makes of the kubelet's answer: it looks for devices in the files of a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.containers.bundle import bind
from tests.kubernetes.dra.published import unknown

if TYPE_CHECKING:
    from tests.containers.running import Given


def edits(directory: Path, device: str) -> dict[str, Any]:
    """Those of a device, as in carpool.dev/claim=UID; LookupError where there is none."""
    kind, _, name = device.partition("=")
    specs = (json.loads(path.read_text()) for path in sorted(directory.glob("*.json")))
    found = [
        each for spec in specs if spec["kind"] == kind and not unknown(spec, "CdiSpec") for each in spec["devices"]
    ]
    return {each["name"]: each["containerEdits"] for each in found}[name]


def given(directory: Path, device: str) -> Given:
    """The variables, and the mounts as in config.json of runc."""
    made = edits(directory, device)
    assert made["deviceNodes"] == []
    assert all("ro" in mount["options"] for mount in made["mounts"])
    mounts = [bind(mount["hostPath"], mount["containerPath"]) for mount in made["mounts"]]
    return dict(text.split("=", 1) for text in made["env"]), mounts


def outside(directory: Path, device: str) -> dict[str, str]:
    """The variables with the paths that the mounts have outside: for a plain process."""
    variables, mounts = given(directory, device)
    for name, value in variables.items():
        for mount in mounts:
            value = value.replace(mount["destination"], mount["source"])
        variables[name] = value
    return variables
