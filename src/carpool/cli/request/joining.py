"""The variables by which a process joins, for `carpool env` and for Ray's workers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.core.spelling import did_you_mean
from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.environment import token
from carpool.protocol.session import JoinOptions
from carpool.runtime.launch import LaunchError, joining_variables


def variables_for(client: DaemonClient, options: JoinOptions, env: Mapping[str, str]) -> dict[str, str]:
    """Return variables by which a process that is started with ``env`` on this machine joins the daemon of ``client``.

    Raises Problem where libcarpool cannot be preloaded, or the device is unknown or has to be named; ClientError.
    """
    gpu, threads = _gpu(client, options.device), client.version().threads
    options = options if gpu is None else msgspec.structs.replace(options, device=gpu.id)
    socket, text = str(client.home.session_socket.absolute()), msgspec.json.encode(options).decode()
    about = {"socket": socket, "options": text, "token": token(client.home.root)}
    uuid = "" if gpu is None else gpu.uuid
    try:
        return joining_variables(dict(env), **about, threads=threads, cuda_device=uuid)
    except LaunchError as error:
        raise Problem(Exit.FAILED, "not_preloadable", str(error)) from None


def _gpu(client: DaemonClient, name: str | None) -> DeviceInfo | None:
    """Return the only GPU that the jobs see; None: the jobs use the host's memory.  Raises Problem.

    A process sees its GPUs from its start on, before the job is placed: so the GPU has to be named.
    """
    devices = {device.id: device for device in client.devices()}
    if name is not None and name not in devices:
        hint = f"{did_you_mean(name, devices)}known: {', '.join(devices)}"
        raise Problem(Exit.USAGE, "unknown_device", f"there is no device {name!r}", hint)
    chosen = [devices[name]] if name is not None else list(devices.values())
    if len(chosen) > 1 and any(device.uuid for device in chosen):
        text = "a process sees its GPU from its start, before it is placed, and there are several devices"
        raise Problem(Exit.USAGE, "which_device", text, f"name one: --device-id {chosen[0].id}")
    return chosen[0] if chosen and chosen[0].uuid else None
