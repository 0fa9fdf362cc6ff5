"""What `carpool docker-args` prints, and what it refuses; `tests/containers` starts containers with it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carpool.cli.base.cli_error import Problem
from carpool.cli.commands.integration.joining import _engine
from carpool.cli.request.joining import APPTAINER, DOCKER, PODMAN, ContainerEngine, Needs, needs
from carpool.protocol.paths import Home
from carpool.protocol.session import JoinOptions
from carpool.runtime import native

GPU = "GPU-5a2f"


def client_of(home: Path, uuid: str = "") -> Any:
    """A stand-in for the client of a daemon that has its home there."""
    socket = Home(home).joining_socket
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.touch()
    socket.chmod(0o666)
    device = SimpleNamespace(id="device0", uuid=uuid)
    return SimpleNamespace(home=Home(home), devices=lambda: [device], version=lambda: SimpleNamespace(threads=2))


@pytest.fixture(autouse=True)
def _library() -> None:
    if not native.library_path().exists():
        pytest.skip("libcarpool has not been built (make native)")


def made(engine: ContainerEngine, home: Path, uuid: str = "", **options: Any) -> list[str]:
    return engine.arguments(needs(client_of(home, uuid), JoinOptions(**options), engine, {}))


def values(arguments: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(arguments) if name == option]


def test_a_container_gets_the_socket_and_the_runtime_read_only_and_nothing_else(tmp_path: Path) -> None:
    mounts = values(made(DOCKER, tmp_path), "--mount")
    assert all(mount.startswith("type=bind,source=/") and mount.endswith(",readonly") for mount in mounts)
    targets = {mount.split(",")[2] for mount in mounts}
    package = {f"target=/opt/carpool/{name}" for name in ("__init__.py", "runtime", "_native/libcarpool.so")}
    assert targets == {"target=/run/carpool", *package}
    assert f"type=bind,source={tmp_path}/joining,target=/run/carpool,readonly" in mounts


def test_variables_have_paths_of_the_container_and_nothing_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/this/machine")
    variables = dict(text.split("=", 1) for text in values(made(DOCKER, tmp_path, name="a b"), "--env"))
    assert variables["LD_PRELOAD"] == "/opt/carpool/_native/libcarpool.so"
    assert variables["PYTHONPATH"] == "/opt/carpool/runtime/site"
    assert variables["CARPOOL_JOIN"] == "/run/carpool/session.sock"
    assert variables["CARPOOL_JOIN_OPTIONS"] == '{"name":"a b"}'
    assert variables["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("engine", "words"),
    [(DOCKER, ["--gpus", f"device={GPU}"]), (PODMAN, ["--device", f"nvidia.com/gpu={GPU}"]), (APPTAINER, ["--nv"])],
)
def test_a_gpu_is_that_of_the_job(engine: ContainerEngine, words: list[str], tmp_path: Path) -> None:
    assert made(engine, tmp_path, GPU)[-len(words) :] == words
    assert made(engine, tmp_path)[-len(words) :] != words


def test_apptainer_gets_no_commas_and_no_quotes(tmp_path: Path) -> None:
    """It would take them for its own."""
    arguments = made(APPTAINER, tmp_path, name="a, b", weight=200)
    assert f"{tmp_path}/joining:/run/carpool:ro" in values(arguments, "--bind")
    variables = dict(text.split("=", 1) for text in values(arguments, "--env"))
    assert not set(",\"'") & set("".join(variables.values()))
    assert bytes.fromhex(variables["CARPOOL_JOIN_OPTIONS"]) == b'{"name":"a, b","weight":200}'


def test_a_user_whose_daemon_serves_no_others_is_the_user_of_the_container() -> None:
    needed = Needs([], {}, "", (1000, 100))
    assert DOCKER.arguments(needed) == ["--user", "1000:100"]
    assert PODMAN.arguments(needed) == []  # the container's root is that user


def test_only_that_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    client = client_of(tmp_path)
    assert needs(client, JoinOptions(), DOCKER, {}).user is None
    client.home.joining_socket.chmod(0o600)
    assert needs(client, JoinOptions(), DOCKER, {}).user == (1000, os.getegid())


@pytest.mark.parametrize(("engine", "name"), [(DOCKER, "DOCKER_HOST"), (PODMAN, "CONTAINER_HOST")])
def test_another_machine_is_refused(engine: ContainerEngine, name: str, tmp_path: Path) -> None:
    client = client_of(tmp_path)
    with pytest.raises(Problem, match="may be another machine"):
        needs(client, JoinOptions(), engine, {name: "ssh://there"})
    assert needs(client, JoinOptions(), engine, {name: "unix:///run/user/1000/engine.sock"}).mounts


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a:b"])
def test_paths_that_cannot_be_mounted_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot be mounted"):
        made(DOCKER, tmp_path / name)


def test_a_daemon_without_the_directory_is_refused(tmp_path: Path) -> None:
    client = client_of(tmp_path)
    client.home.joining_socket.unlink()
    with pytest.raises(Problem, match="offers no session socket"):
        needs(client, JoinOptions(), DOCKER, {})


def test_arguments_are_for_one_engine() -> None:
    with pytest.raises(Problem, match="--podman and --apptainer"):
        _engine(podman=True, apptainer=True)
