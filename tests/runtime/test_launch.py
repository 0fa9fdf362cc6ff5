"""The environment of a job, and the public API outside of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import carpool
from carpool.runtime import launch, native

SITE = str(launch.site_directory())


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file in place of libcarpool, so that these tests do not need a build."""
    file = tmp_path / "libcarpool.so"
    file.touch()
    monkeypatch.setattr(native, "library_path", lambda: file)
    return str(file)


def environment(env: dict[str, str] | None = None, threads: int | None = 2) -> dict[str, str]:
    return launch.job_environment(env or {}, home="/home", job=7, job_fd=5, threads=threads)


def test_a_job_knows_its_number_channel_and_home(library: str) -> None:
    env = environment({"KEPT": "1"})
    assert env["KEPT"] == "1"
    assert (env["CARPOOL_JOB"], env["CARPOOL_JOB_FD"], env["CARPOOL_HOME"]) == ("7", "5", "/home")
    assert (env["LD_PRELOAD"], env["PYTHONPATH"]) == (library, SITE)


def test_what_the_user_preloads_and_imports_comes_after(library: str) -> None:
    env = environment({"LD_PRELOAD": "/a.so:/b.so", "PYTHONPATH": "/x::/y"})
    assert env["LD_PRELOAD"] == f"{library}:/a.so:/b.so"
    assert env["PYTHONPATH"] == f"{SITE}:/x::/y"


def test_an_environment_captured_inside_a_job_gives_the_same_one() -> None:
    outer = environment({"LD_PRELOAD": "/a.so"}) | {"CARPOOL_JOB_PID": "123"}
    assert environment(outer) == environment({"LD_PRELOAD": "/a.so"})


def test_a_job_on_a_gpu_sees_that_one_and_no_other() -> None:
    about = {"home": "/home", "job": 7, "job_fd": 5, "threads": None}
    env = launch.job_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, **about, cuda_device="GPU-1")
    assert (env["CUDA_VISIBLE_DEVICES"], env["CARPOOL_CUDA_DEVICE"]) == ("GPU-1", "GPU-1")
    elsewhere = launch.job_environment(env, **about)  # submitted from inside such a job
    assert "CARPOOL_CUDA_DEVICE" not in elsewhere


def test_the_callers_environment_stays_as_it_is() -> None:
    env = {"OMP_NUM_THREADS": "8"}
    environment(env)
    assert env == {"OMP_NUM_THREADS": "8"}


@pytest.mark.parametrize(
    ("user", "expected"),
    [(None, "2"), ("1", "1"), ("2", "2"), ("8", "2"), ("4,1", "2,1"), ("", "2"), ("lots", "2"), ("0", "2")],
)
def test_threads_are_bounded(user: str | None, expected: str) -> None:
    names = launch.THREAD_VARIABLES
    env = environment({} if user is None else dict.fromkeys(names, user))
    assert {name: env[name] for name in names} == dict.fromkeys(names, expected)


def test_without_a_bound_threads_are_the_users_business() -> None:
    env = environment({"OMP_NUM_THREADS": "8", "OMP_WAIT_POLICY": "active"}, threads=None)
    assert env["OMP_NUM_THREADS"] == "8"
    assert "MKL_NUM_THREADS" not in env
    assert env["OMP_WAIT_POLICY"] == "passive"


def test_a_disabled_job_is_left_alone(library: str) -> None:
    user = {"CARPOOL_DISABLE": "1", "PYTHONPATH": "/x", "OMP_NUM_THREADS": "8"}
    assert environment(user) == user
    inside = environment({"PYTHONPATH": "/x", "OMP_NUM_THREADS": "1"}) | {"CARPOOL_DISABLE": "1"}
    assert not set(environment(inside)) & {"LD_PRELOAD", *launch.JOB_VARIABLES}
    assert environment({"CARPOOL_DISABLE": "0"})["LD_PRELOAD"] == library


def test_a_plain_process_can_import_carpool_and_is_no_job() -> None:
    inside = environment({"LD_PRELOAD": "/a.so", "PYTHONPATH": "/x"})
    env = launch.plain_environment(inside)
    assert env == {
        "LD_PRELOAD": "/a.so",
        "PYTHONPATH": f"{SITE}:/x",
        "CARPOOL_DISABLE": "1",
        "OMP_WAIT_POLICY": "passive",
        **{name: inside[name] for name in launch.THREAD_VARIABLES},
    }
    assert "LD_PRELOAD" not in launch.plain_environment(environment())


def test_a_missing_library_is_an_error_that_says_what_to_do(library: str) -> None:
    Path(library).unlink()
    with pytest.raises(launch.LaunchError, match="make native"):
        environment()


@pytest.mark.parametrize("name", ["my projects", "a:b", "$ORIGIN"])
def test_a_path_that_cannot_be_preloaded_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = tmp_path / name / "libcarpool.so"
    file.parent.mkdir()
    file.touch()
    monkeypatch.setattr(native, "library_path", lambda: file)
    with pytest.raises(launch.LaunchError, match="without spaces, colons"):
        environment()


def test_the_api_does_nothing_outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARPOOL_JOB_FD", raising=False)
    native.preloaded.cache_clear()
    with carpool.iteration():
        carpool.progress(0, 0)
    assert native.preloaded() is None


def test_an_exception_leaves_an_iteration() -> None:
    with pytest.raises(KeyError), carpool.iteration():
        raise KeyError("mine")


@pytest.mark.parametrize(("done", "total"), [(-1, 2), (3, 2), (1, -1), (0, 2**63)])
def test_impossible_progress_is_refused(done: int, total: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= done <= total"):
        carpool.progress(done, total)


@pytest.mark.parametrize("done", [0.5, "1", None])
def test_progress_counts_in_integers(done: object) -> None:
    with pytest.raises(TypeError):
        carpool.progress(done, 10)  # type: ignore[arg-type]


def test_importing_carpool_imports_nothing_else() -> None:
    code = "import sys, typing; before = set(sys.modules); import carpool; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['__future__', 'carpool']\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'iterations'"):
        _ = carpool.iterations  # type: ignore[attr-defined]
    assert {"iteration", "progress"} <= set(dir(carpool))
