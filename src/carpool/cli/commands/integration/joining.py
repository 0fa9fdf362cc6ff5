"""``carpool env`` and ``carpool docker-args``: what lets a process that something else starts be a job."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.daemon_start import connected
from carpool.cli.base.options_common import answer, with_common_options
from carpool.cli.request.job_options import with_joining_options
from carpool.cli.request.joining import APPTAINER, DOCKER, PODMAN, ContainerEngine, needs, variables_for
from carpool.protocol.session import JoinOptions


@click.command("env", short_help="Print variables by which any process is a job.")
@with_joining_options
@with_common_options
def env(home: Path, as_json: bool, asked: JoinOptions) -> int:
    """Print variables by which a Python process that uses PyTorch is a job, whatever starts it.

    eval "$(carpool env)" sets them in a shell: from then on each process that it starts joins when it is about to use
    its device, and waits for its place there.
    """
    present = {key: value for key, value in os.environ.items() if key.isidentifier()}
    with connected(home) as client:
        variables = variables_for(client, asked, present)
    return answer(
        as_json, variables, lambda: (f"export {key}={shlex.quote(value)}" for key, value in variables.items())
    )


@click.command("docker-args", short_help="Print arguments by which a container's processes are jobs.")
@click.option("--podman", is_flag=True, help="For `podman run`.")
@click.option("--apptainer", is_flag=True, help="For `apptainer exec`.")
@with_joining_options
@with_common_options
def docker_args(home: Path, as_json: bool, asked: JoinOptions, podman: bool, apptainer: bool) -> int:
    """Print arguments for `docker run` by which Python processes that use PyTorch are jobs in that container.

    \b
    eval "docker run $(carpool docker-args) IMAGE python train.py"

    The image needs neither Carpool nor a certain Python, but glibc: processes do not join in images
    with musl, such as Alpine's.
    """
    engine = _engine(podman, apptainer)
    with connected(home) as client:
        arguments = engine.arguments(needs(client, asked, engine, os.environ))
    return answer(as_json, arguments, lambda: [shlex.join(arguments)])


def _engine(podman: bool, apptainer: bool) -> ContainerEngine:
    if podman and apptainer:
        raise Problem(Exit.USAGE, "two_engines", "--podman and --apptainer exclude each other")
    return PODMAN if podman else APPTAINER if apptainer else DOCKER
