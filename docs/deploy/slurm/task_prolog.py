"""Slurm's TaskProlog of Carpool: prints ``export`` and ``unset`` lines, by which a task that has a shard joins.

Runs as the job's user for each task, before exec; `task_prolog` beside this file starts it.  It never fails a task:
what does not join runs without Carpool, and a ``print`` line says why.  Tasks without a shard lose the variables that
the submitting process has left, so that they do not join as what their submitter was.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from carpool.protocol.api import DeviceInfo
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.environment import token
from carpool.protocol.paths import Home
from carpool.protocol.session import JoinOptions
from carpool.runtime.launch import LaunchError, disabled, joining_variables, outside_of_jobs

#: For the daemon (which may just be started again), and for Slurm's controller; a task waits for this.
DAEMON_S, SLURM_S = 10.0, 10.0
AGAIN_S = 0.2
#: Slurm looks for jobs over their limit every half minute, and is to be first: Carpool's own limit is so much later.
LATER_US = 120_000_000
LONGEST_NAME = 200
MIB = 1 << 20


def main() -> None:
    """Print the lines for the task of the environment."""
    arguments = _arguments()
    env = {key: value for key, value in os.environ.items() if key.isidentifier()}
    wanted = outside_of_jobs(env)
    if env.get("SLURM_SHARDS_ON_NODE", "0") != "0" and not disabled(env):
        try:
            wanted |= joining(arguments, env)
        except (ClientError, LaunchError, LookupError, OSError) as error:
            print(f"print carpool: warning: {' '.join(str(error).split())}; this task runs without Carpool")
    print("\n".join(lines(env, wanted)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="state directory of the node's Carpool daemon")
    parser.add_argument("--devices", type=lambda text: text.split(","), help="Carpool's device of each GPU of gres.conf, in order  [default: as in carpool devices]")  # fmt: skip  # noqa: E501
    parser.add_argument("--squeue", default="squeue", help="the command  [default: squeue]")
    return parser.parse_args()


def lines(before: Mapping[str, str], wanted: Mapping[str, str]) -> Iterable[str]:
    """What turns one environment into the other.  Slurm takes a value as it is, to the end of the line."""
    for name in sorted(before.keys() - wanted.keys()):
        yield f"unset {name}"
    for name, value in sorted(wanted.items()):
        if before.get(name) != value and "\n" not in value:
            yield f"export {name}={value}"


def joining(arguments: argparse.Namespace, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a task that joins.  Raises ClientError, LaunchError, LookupError, OSError."""
    home: Path = arguments.home
    devices, threads = _of_daemon(home)
    chosen = _chosen(arguments.devices or [device.id for device in devices], env, {d.id: d for d in devices})
    gpu = next((device for device in chosen if device.uuid), None)
    text = msgspec.json.encode(options(chosen if gpu is None else [gpu], env, _end_us(arguments.squeue, env))).decode()
    return joining_variables(
        outside_of_jobs(dict(env)),
        socket=str(Home(home).session_socket.absolute()),
        options=text,
        token=token(home),
        threads=threads,
        cuda_device="" if gpu is None else gpu.uuid,
    )


def options(devices: list[DeviceInfo], env: Mapping[str, str], end_us: int | None) -> JoinOptions:
    """What the task is to Carpool: of its Slurm job's name, on the device and within the limits that it has there."""
    number, now_us = _number(env), int(time.time() * 1e6)
    name = "".join(letter if letter.isprintable() else "?" for letter in env.get("SLURM_JOB_NAME", ""))
    return JoinOptions(
        name=f"{name[:LONGEST_NAME]}-{number}" if name else f"slurm-{number}",
        persistent_bytes=_memory(devices, env),
        device=",".join(device.id for device in devices),
        time_us=None if end_us is None else max(1, end_us - now_us) + LATER_US,
        launcher=f"slurm {env['SLURM_JOB_ID']}",
        launcher_ends_us=end_us,
    )


def _number(env: Mapping[str, str]) -> str:
    """Of an array's job as Slurm shows it."""
    if "SLURM_ARRAY_JOB_ID" in env:
        return f"{env['SLURM_ARRAY_JOB_ID']}_{env.get('SLURM_ARRAY_TASK_ID', '')}"
    return env["SLURM_JOB_ID"]


def _memory(devices: list[DeviceInfo], env: Mapping[str, str]) -> int | None:
    """Slurm's limit is one of the host's memory, which a GPU's is not: it says what a host device may be asked for."""
    if any(device.uuid for device in devices):
        return None
    cpus = int(env.get("SLURM_CPUS_ON_NODE", "1"))
    limit = int(env.get("SLURM_MEM_PER_NODE", "0")) or int(env.get("SLURM_MEM_PER_CPU", "0")) * cpus
    return min(limit * MIB, *(device.capacity_bytes for device in devices)) or None


def _of_daemon(home: Path) -> tuple[list[DeviceInfo], int | None]:
    """Its devices, and the bound of a job's threads.  Raises ClientError."""
    deadline = time.monotonic() + DAEMON_S
    while True:
        try:
            with DaemonClient(home, timeout_s=DAEMON_S) as client:
                return client.devices(), client.version().threads
        except ClientError:
            if time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)


def _chosen(names: list[str], env: Mapping[str, str], known: Mapping[str, DeviceInfo]) -> list[DeviceInfo]:
    """Those that Slurm has chosen: it counts the GPUs of the node's gres.conf.  Raises LookupError."""
    places = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or ""
    numbers = [int(place) for place in places.split(",") if place.isdigit()]
    if not numbers:
        raise LookupError("Slurm says no GPU of this task (SLURM_JOB_GPUS): shards need a gpu line in gres.conf")
    if missing := [number for number in numbers if number >= len(names)]:
        raise LookupError(f"Slurm has chosen GPU {missing[0]}, and Carpool has {len(names)} devices: see --devices")
    if unknown := [names[number] for number in numbers if names[number] not in known]:
        raise LookupError(f"Carpool has no device {unknown[0]!r}: see --devices")
    return [known[names[number]] for number in numbers]


def _end_us(squeue: str, env: Mapping[str, str]) -> int | None:
    """When the Slurm job reaches its time limit (wall clock); None: it has none, or Slurm does not say."""
    command = [squeue, "--noheader", f"--jobs={env['SLURM_JOB_ID']}", "--format=%e"]
    plain = {name: value for name, value in env.items() if not name.startswith(("SQUEUE_", "LD_", "PYTHON"))}
    try:
        done = subprocess.run(
            command, env=plain | {"SLURM_TIME_FORMAT": "standard"}, capture_output=True, text=True, check=False,
            timeout=SLURM_S,
        )  # fmt: skip
        return int(datetime.fromisoformat(done.stdout.strip()).timestamp() * 1e6)
    except (ValueError, OSError, subprocess.TimeoutExpired):
        return None


if __name__ == "__main__":
    main()
