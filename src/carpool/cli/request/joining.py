"""The variables by which unmodified Python processes join, and arguments for programs that start containers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from carpool.cli.base.cli_error import Exit, Problem
from carpool.core.spelling import did_you_mean
from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.environment import OPTIONS, token
from carpool.protocol.session import JoinOptions
from carpool.runtime import native
from carpool.runtime.launch import LaunchError, joining_variables, site_directory

#: Where a container has the parts of Carpool that it needs, laid out as the package; the session socket's directory.
PACKAGE, SOCKETS = Path("/opt/carpool"), Path("/run/carpool")


class Mount(NamedTuple):
    """A file or directory of this machine that a container sees, and cannot write to."""

    source: Path
    target: Path


class Needs(NamedTuple):
    """The needs of a container.  ``gpu``: its uuid, or empty; ``user``: uid and gid if it is the only one served."""

    mounts: list[Mount]
    variables: dict[str, str]
    gpu: str
    user: tuple[int, int] | None


class ContainerEngine(NamedTuple):
    """A program that starts containers.  ``host``: the variable that may name another machine for it."""

    host: str
    arguments: Callable[[Needs], list[str]]


def needs(client: DaemonClient, asked: JoinOptions, engine: ContainerEngine, env: Mapping[str, str]) -> Needs:
    """Return what processes in a container need to join.  ``env``: of the engine.  Raises Problem, ClientError."""
    _check_machine(engine.host, env.get(engine.host, ""))
    variables = variables_for(client, asked, {})
    socket = client.home.joining_socket.absolute()
    mounts = [*_package(), Mount(socket.parent, SOCKETS)]
    _check_mounts(mounts)
    variables["LD_PRELOAD"] = str(_inside(native.library_path()))
    variables["PYTHONPATH"] = str(_inside(site_directory()))
    variables["CARPOOL_JOIN"] = str(SOCKETS / socket.name)
    return Needs(mounts, variables, variables.get("CARPOOL_CUDA_DEVICE", ""), _user(socket))


def _package() -> list[Mount]:
    """Return mounts of the parts of the package that a job needs, without the daemon and the command line."""
    runtime = site_directory().parent
    parts = (runtime.parent / "__init__.py", runtime, native.library_path())
    return [Mount(path, _inside(path)) for path in parts]


def _inside(path: Path) -> Path:
    return PACKAGE / path.relative_to(site_directory().parent.parent)


def _user(socket: Path) -> tuple[int, int] | None:
    """Return the uid and gid to join with: a user's own daemon lets in that user's processes only.  Raises Problem."""
    try:
        serves_all = bool(socket.stat().st_mode & 0o002)
    except FileNotFoundError:
        text = f"the daemon offers no session socket to containers: {socket} is missing"
        raise Problem(Exit.REFUSED, "no_joining_socket", text, "see daemon.log") from None
    return None if serves_all or os.geteuid() == 0 else (os.geteuid(), os.getegid())


def _check_machine(name: str, host: str) -> None:
    if host and not host.startswith(("unix:", "/")):
        text = f"{name}={host} may be another machine, and a container there cannot reach this daemon"
        raise Problem(Exit.REFUSED, "other_machine", text, f"unset {name}, or run this command on that machine")


def _check_mounts(mounts: Iterable[Mount]) -> None:
    for mount in mounts:
        if re.search(r'[,:"\n]', str(mount.source)):
            text = f"{str(mount.source)!r} cannot be mounted: the path has a comma, a colon, a quote or a new line"
            raise Problem(Exit.REFUSED, "unmountable", text, "choose another --home, or install Carpool elsewhere")


def _variables(needed: Needs) -> list[str]:
    return [word for name, value in needed.variables.items() for word in ("--env", f"{name}={value}")]


def _binds(needed: Needs) -> list[str]:
    """Return options for the mounts: with `--mount` a missing source is an error, `--volume` would make a directory."""
    texts = (f"type=bind,source={mount.source},target={mount.target},readonly" for mount in needed.mounts)
    return [word for text in texts for word in ("--mount", text)]


def _docker(needed: Needs) -> list[str]:
    gpu = ["--gpus", f"device={needed.gpu}"] if needed.gpu else []
    user = ["--user", "{}:{}".format(*needed.user)] if needed.user else []
    return [*user, *_binds(needed), *_variables(needed), *gpu]


def _podman(needed: Needs) -> list[str]:
    """Return arguments for Podman without --user: the container's root is the user outside, and for the daemon."""
    gpu = ["--device", f"nvidia.com/gpu={needed.gpu}"] if needed.gpu else []
    return [*_binds(needed), *_variables(needed), *gpu]


def _apptainer(needed: Needs) -> list[str]:
    """Return arguments for Apptainer, JSON in hexadecimal: its --env splits at commas, refuses quotes (issue 1152)."""
    binds = [word for mount in needed.mounts for word in ("--bind", f"{mount.source}:{mount.target}:ro")]
    plain = needed.variables | {OPTIONS: needed.variables[OPTIONS].encode().hex()}
    return [*binds, *_variables(needed._replace(variables=plain)), *(["--nv"] if needed.gpu else [])]


DOCKER = ContainerEngine("DOCKER_HOST", _docker)
PODMAN = ContainerEngine("CONTAINER_HOST", _podman)
APPTAINER = ContainerEngine("", _apptainer)


def variables_for(client: DaemonClient, options: JoinOptions, env: Mapping[str, str]) -> dict[str, str]:
    """Return variables by which a process that is started with ``env`` on this machine joins the daemon of ``client``.

    Raises Problem where libcarpool cannot be preloaded, or the device is unknown or has to be named; ClientError.
    """
    gpu, threads = _gpu(client, options.device), client.version().threads
    options = options if gpu is None else msgspec.structs.replace(options, device=gpu.id)
    socket, text = str(client.home.session_socket.absolute()), msgspec.json.encode(options).decode()
    about = {"socket": socket, "options": text, "token": token(client.home.root)}
    uuid = "" if gpu is None else gpu.uuid
    engine = {"CARPOOL_ENGINE": "1"} if options.engine else {}
    try:
        return joining_variables(dict(env), **about, threads=threads, cuda_device=uuid) | engine
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
