"""``carpool k8s``: the daemon's devices for the pods of Kubernetes."""

from __future__ import annotations

import importlib.util
import logging
import re
import signal
import threading
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.options_common import POSITIVE, pass_on_common_options, with_common_options
from carpool.cli.request.joining import PACKAGE, ContainerEngine, Needs, needs
from carpool.kubernetes.allocation import Given
from carpool.kubernetes.package_copy import copied
from carpool.protocol.client import DaemonClient
from carpool.protocol.missing_package import extra_hint
from carpool.protocol.session import JoinOptions

RESOURCE, SHARES = "carpool.dev/gpu", 10
DIRECTORY = Path("/var/lib/kubelet/device-plugins")
_LABEL = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
#: The kubelet is on this machine.
KUBELET = ContainerEngine("", lambda _: [])


@click.group("k8s", short_help="Serve pods of Kubernetes (needs the extra k8s).")
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> None:
    """Serve pods of Kubernetes."""
    pass_on_common_options(context, command.commands)


@command.command("plugin", short_help="Run the device plugin.")
@click.option("--shares", type=POSITIVE, default=SHARES, show_default=True, help="Shares of each device.")
@click.option("--resource", default=RESOURCE, show_default=True, help="Name of a share in pods.")
@click.option(
    "--gpus",
    type=click.Choice(["runtime", "nodes", "cdi"]),
    default="runtime",
    show_default=True,
    help="How containers get their GPU: NVIDIA's runtime, device nodes, or CDI.",
)
@click.option(
    "--kubelet-dir",
    "directory",
    metavar="DIR",
    type=click.Path(file_okay=False, readable=False, path_type=Path),
    default=DIRECTORY,
    show_default=True,
    help="Directory of the sockets of the kubelet and its plugins.",
)
@click.option(
    "--copy-to",
    metavar="DIR",
    type=click.Path(file_okay=False, readable=False, path_type=Path),
    help="Copy the files that containers mount into DIR, a directory of the host: for a plugin in a container.",
)
@with_common_options
def plugin(
    home: Path, as_json: bool, shares: int, resource: str, gpus: str, directory: Path, copy_to: Path | None
) -> int:
    """Run the device plugin until SIGTERM: pods ask for shares, and their processes are jobs.

    All shares of a container are of one device.  The daemon has to run for containers to start; without it all shares
    are unhealthy.
    """
    _check(resource, directory)
    from carpool.cli.commands.integration.k8s import NeedsOfPods  # grpc takes long to load
    from carpool.kubernetes.allocation import GpuAccess
    from carpool.kubernetes.plugin import Plugin
    from carpool.kubernetes.servicer import Inventory, Shared

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    logging.basicConfig(level=logging.INFO, format="carpool: %(message)s")
    shared = Shared(Inventory(home), shares, NeedsOfPods(home, copy_to), GpuAccess(gpus))
    Plugin(directory.absolute(), resource, shared).run(stopped)
    return 0


def _check(resource: str, directory: Path) -> None:
    if not re.fullmatch(rf"{_LABEL}/{_LABEL}", resource):
        raise Problem(Exit.USAGE, "bad_resource", f"{resource!r} is not the name of a resource", f"as in {RESOURCE}")
    if not directory.is_dir():
        text = f"{directory} is not a directory: no kubelet has run here"
        raise Problem(Exit.USAGE, "no_kubelet", text, "start the kubelet, or give --kubelet-dir")
    if importlib.util.find_spec("grpc") is None:
        raise Problem(Exit.FAILED, "no_grpc", "grpcio is not installed", extra_hint("k8s"))


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
