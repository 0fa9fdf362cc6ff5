"""``carpool k8s``: the daemon's devices for the pods of Kubernetes."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

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
KUBELET_DIRECTORY, CDI_DIRECTORY = Path("/var/lib/kubelet"), Path("/var/run/cdi")
DIRECTORY = KUBELET_DIRECTORY / "device-plugins"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
F = TypeVar("F", bound=Callable[..., Any])
_LABEL = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
#: The kubelet is on this machine.
KUBELET = ContainerEngine("", lambda _: [])


def _directory_option(flag: str, default: Path | None, help: str, *names: str) -> Callable[[F], F]:  # noqa: A002
    path = click.Path(file_okay=False, readable=False, path_type=Path)
    return click.option(flag, *names, metavar="DIR", type=path, default=default, show_default=True, help=help)


SHARES_OF_DEVICE = click.option(
    "--shares", type=POSITIVE, default=SHARES, show_default=True, help="Shares of each device."
)
GPUS = click.option(
    "--gpus",
    type=click.Choice(["runtime", "nodes", "cdi"]),
    default="runtime",
    show_default=True,
    help="How containers get their GPU: NVIDIA's runtime, device nodes, or CDI.",
)
COPY_TO = _directory_option(
    "--copy-to",
    None,
    "Copy the files that containers mount into DIR, a directory of the host: for a plugin in a container.",
)


@click.group("k8s", short_help="Serve pods of Kubernetes (needs the extra k8s).")
@with_common_options
@click.pass_context
def command(context: click.Context, home: Path, as_json: bool) -> None:
    """Serve pods of Kubernetes."""
    pass_on_common_options(context, command.commands)


@command.command("plugin", short_help="Run the device plugin.")
@SHARES_OF_DEVICE
@click.option("--resource", default=RESOURCE, show_default=True, help="Name of a share in pods.")
@GPUS
@_directory_option("--kubelet-dir", DIRECTORY, "Directory of the sockets of the kubelet and its plugins.", "directory")
@COPY_TO
@with_common_options
def plugin(
    home: Path, as_json: bool, shares: int, resource: str, gpus: str, directory: Path, copy_to: Path | None
) -> int:
    """Run the device plugin until SIGTERM: pods ask for shares, and their processes are jobs.

    All shares of a container are of one device.  The daemon has to run for containers to start; without it all shares
    are unhealthy.
    """
    if not re.fullmatch(rf"{_LABEL}/{_LABEL}", resource):
        raise Problem(Exit.USAGE, "bad_resource", f"{resource!r} is not the name of a resource", f"as in {RESOURCE}")
    _check(directory)
    from carpool.cli.commands.integration.k8s import NeedsOfPods  # grpc takes long to load
    from carpool.kubernetes.allocation import GpuAccess
    from carpool.kubernetes.plugin import Plugin
    from carpool.kubernetes.servicer import Inventory, Shared

    shared = Shared(Inventory(home), shares, NeedsOfPods(home, copy_to), GpuAccess(gpus))
    Plugin(directory.absolute(), resource, shared).run(_stopped_by_signals())
    return 0


@command.command("dra", short_help="Run the DRA driver (Kubernetes 1.34 or newer).")
@SHARES_OF_DEVICE
@GPUS
@click.option("--node", metavar="NAME", default=socket.gethostname, help="This node's name.  [default: the host's]")
@_directory_option("--kubelet-dir", KUBELET_DIRECTORY, "Directory of the kubelet.")
@_directory_option("--cdi-dir", CDI_DIRECTORY, "Directory of the container runtime's CDI files.")
@click.option("--api-server", metavar="URL", help="The API server.  [default: the cluster's, in a pod]")
@_directory_option("--account", ACCOUNT, "Directory with the token of a service account and ca.crt.")
@COPY_TO
@with_common_options
def dra(
    home: Path,
    as_json: bool,
    shares: int,
    gpus: str,
    node: str,
    kubelet_dir: Path,
    cdi_dir: Path,
    api_server: str | None,
    account: Path,
    copy_to: Path | None,
) -> int:
    """Run the DRA driver until SIGTERM: pods claim shares of devices, and their processes are jobs.

    Carpool's options come with the claim.  While the daemon does not run no new pods are placed here.
    """
    _check(kubelet_dir / "plugins_registry")
    from carpool.cli.commands.integration.k8s import NeedsOfPods  # grpc takes long to load
    from carpool.kubernetes.allocation import GpuAccess
    from carpool.kubernetes.dra.agent import DraAgent, TwoDrivers
    from carpool.kubernetes.dra.api_server import KubernetesApi
    from carpool.kubernetes.dra.cdi import CdiDirectory
    from carpool.kubernetes.dra.driver import Means

    try:
        server = KubernetesApi(api_server or _cluster(), account)
    except ValueError as error:
        raise Problem(Exit.USAGE, "bad_api_server", str(error), "give --api-server") from None
    means = Means(node, server, CdiDirectory(cdi_dir.absolute()), NeedsOfPods(home, copy_to), GpuAccess(gpus))
    try:
        DraAgent(kubelet_dir.absolute(), home, shares, means).run(_stopped_by_signals())
    except TwoDrivers as error:
        raise Problem(Exit.REFUSED, "two_drivers", str(error), "stop the other one first") from None
    return 0


def _cluster() -> str:
    """Return the address that a pod finds in its environment.  Raises Problem."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host:
        raise Problem(Exit.USAGE, "no_api_server", "this is no pod: the API server is unknown", "give --api-server URL")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _stopped_by_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; write what happens to standard error."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    logging.basicConfig(level=logging.INFO, format="carpool: %(message)s")
    return stopped


def _check(directory: Path) -> None:
    if not directory.is_dir():
        text = f"{directory} is not a directory: no kubelet has run here"
        raise Problem(Exit.USAGE, "no_kubelet", text, "start the kubelet, or give --kubelet-dir")
    if importlib.util.find_spec("grpc") is None:
        raise Problem(Exit.FAILED, "no_grpc", "grpcio is not installed", extra_hint("k8s"))


class NeedsOfPods:
    """``copy_to``: where containers find a copy of the package; None: containers mount this package itself."""

    def __init__(self, home: Path, copy_to: Path | None) -> None:
        self._home, self._copy_to = home, copy_to

    def __call__(self, options: JoinOptions) -> Given:
        """Return the needs of a container whose processes join with them.  Raises Problem, ClientError, OSError."""
        with DaemonClient(self._home) as client:
            needed = needs(client, options, KUBELET, {})
        return Given(self._mounts(needed), needed.variables, needed.gpu)

    def _mounts(self, needed: Needs) -> list[tuple[Path, Path]]:
        pairs = [(mount.source, mount.target) for mount in needed.mounts]
        if self._copy_to is None:
            return pairs
        package = {here: there.relative_to(PACKAGE) for here, there in pairs if there.is_relative_to(PACKAGE)}
        copies = copied(package.items(), self._copy_to.absolute())
        return [(copies.get(here, here), there) for here, there in pairs]
