"""The needs of containers in pods that join, for the device plugin."""

from __future__ import annotations

from pathlib import Path

from carpool.cli.request.containers import PACKAGE, ContainerEngine, Needs, needs
from carpool.kubernetes.allocation import Given
from carpool.kubernetes.package_copy import copied
from carpool.protocol.client import DaemonClient
from carpool.protocol.session import JoinOptions

#: The kubelet is on this machine.
KUBELET = ContainerEngine("", lambda _: [])


class NeedsOfPods:
    """``copy_to``: where containers find a copy of the package; None: containers mount this package itself."""

    def __init__(self, home: Path, copy_to: Path | None) -> None:
        self._home, self._copy_to = home, copy_to

    def __call__(self, device: str) -> Given:
        """Return the needs of a container that uses ``device``.  Raises Problem, ClientError, OSError."""
        with DaemonClient(self._home) as client:
            needed = needs(client, JoinOptions(device=device), KUBELET, {})
        return Given(self._mounts(needed), needed.variables, needed.gpu)

    def _mounts(self, needed: Needs) -> list[tuple[Path, Path]]:
        pairs = [(mount.source, mount.target) for mount in needed.mounts]
        if self._copy_to is None:
            return pairs
        package = {here: there.relative_to(PACKAGE) for here, there in pairs if there.is_relative_to(PACKAGE)}
        copies = copied(package.items(), self._copy_to.absolute())
        return [(copies.get(here, here), there) for here, there in pairs]
