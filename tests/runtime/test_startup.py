"""The start of a Python in a job: what it changes, what it leaves alone, and who attaches.

No test here needs the real torch: a file ``torch.py`` beside the script stands for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.runtime import launch
from carpool.runtime.shim.attach_socket import AttachSocket

if TYPE_CHECKING:
    from tests.runtime.conftest import Job

#: `tests/lean` would be seen, too.
pytestmark = pytest.mark.usefixtures("whole_torch")
SITE = str(launch.site_directory())
OF_A_JOB = ("CARPOOL_JOB_FD", "CARPOOL_JOB", "CARPOOL_HOME")
FORK = "pid = os.fork()\nif pid == 0:\n    import torch\n    os._exit(0)\nassert os.waitpid(pid, 0)[1] == 0"


@pytest.fixture
def fake_torch(job: Job) -> Path:
    """A module torch with nothing in it: attaching works, the hooks do not."""
    file = job.directory / "torch.py"
    file.write_text("loader = __spec__.loader\n")
    return file


def test_a_script_without_torch_never_attaches(job: Job) -> None:
    done = job.run("import json; print('fine')")
    assert (done.out, done.err, done.calls) == ("fine\n", "", [])


def test_attaches_right_after_the_import_of_torch(job: Job, fake_torch: Path) -> None:
    fake_torch.write_text(fake_torch.read_text() + "print('torch', flush=True)\n")
    done = job.run("import torch; print('script')")
    assert done.code == 0
    assert done.names == ["attach"]
    assert done.out == "torch\nscript\n"


def test_a_torch_without_hooks_is_one_warning(job: Job, fake_torch: Path) -> None:
    done = job.run("import torch; import torch; print('script')")
    assert done.out == "script\n"
    assert done.err.count("\n") == 1
    assert done.err.startswith("carpool: warning: this PyTorch lacks the hooks")


def test_looking_for_torch_is_not_importing_it(job: Job, fake_torch: Path) -> None:
    looking = "import importlib.util; print(importlib.util.find_spec('torch').origin)"
    assert job.run(looking).calls == []
    assert job.run(looking + "; import torch").names == ["attach"]


def test_torch_keeps_its_own_loader(job: Job, fake_torch: Path) -> None:
    done = job.run("import torch; print(torch.__loader__ is torch.__spec__.loader, type(torch.loader).__name__)")
    assert done.out == "True SourceFileLoader\n"


def test_an_import_of_torch_that_fails_may_be_tried_again(job: Job, fake_torch: Path) -> None:
    fake_torch.write_text("import os\nif 'NOW' not in os.environ: raise ImportError('not yet')\n")
    done = job.run(
        """
        import os
        try:
            import torch
        except ImportError as error:
            print(error)
        os.environ["NOW"] = "1"
        import torch
        """
    )
    assert (done.out, done.names) == ("not yet\n", ["attach"])


STATE = """
import sys
print(sys.path, sorted({*sys.modules} - {"__future__"}))
"""


@pytest.mark.parametrize("flags", [(), ("-I",), ("-E",)], ids=["plain", "-I", "-E"])
def test_paths_and_modules_look_as_without_carpool(job: Job, flags: tuple[str, ...]) -> None:
    inside = job.run(STATE, flags=flags)
    alone = subprocess.run(
        [sys.executable, *flags, str(job.directory / "script.py")],
        env={name: value for name, value in job.env.items() if name not in ("PYTHONPATH", "LD_PRELOAD")},
        capture_output=True,
        text=True,
        cwd=job.directory,
        timeout=60,
        check=True,
    )
    assert (inside.out, inside.err) == (alone.stdout, alone.stderr)


@pytest.fixture
def other(job: Job) -> Path:
    """Another sitecustomize, behind Carpool's own."""
    (job.directory / "other").mkdir()
    job.env["PYTHONPATH"] = f"{SITE}:{job.directory / 'other'}"
    return job.directory / "other" / "sitecustomize.py"


def test_another_sitecustomize_still_runs(job: Job, other: Path) -> None:
    other.write_text("import sys\nprint('hidden one', __name__)\nsys.other = 1\n")
    done = job.run("import sys; print(sys.other, sys.modules['sitecustomize'].__file__)")
    assert (done.out, done.err) == (f"hidden one sitecustomize\n1 {other}\n", "")


def test_an_error_in_another_sitecustomize_reads_as_without_carpool(job: Job, other: Path) -> None:
    other.write_text("raise ValueError('mine')\n")
    done = job.run("print('script')")
    assert done.out == "script\n"
    assert "ValueError: mine" in done.err
    assert "carpool" not in done.err.replace(SITE, "")


def test_a_process_may_stay_plain(job: Job, fake_torch: Path) -> None:
    done = job.run("import torch; print('fine')", CARPOOL_DISABLE="1")
    assert (done.out, done.err, done.calls) == ("fine\n", "", [])


@pytest.mark.parametrize("fd", ["987", "1", "many", "-1", "99999999999999999999"])
def test_what_is_no_channel_is_not_used(job: Job, fake_torch: Path, fd: str) -> None:
    """A process without one gets one of its own."""
    done = job.run("import torch; print('fine')", CARPOOL_JOB_FD=fd)
    assert (done.out, done.names) == ("fine\n", ["attach"])
    assert str(done.calls[0][1]) != fd


JOIN = {"CARPOOL_JOIN": "/home/session.sock"}
MISSING = "carpool: warning: CARPOOL_JOB_FD is missing from the environment of this job's process; "


@pytest.mark.parametrize(
    ("lacks", "env", "why"),
    [
        (["CARPOOL_JOB_FD"], {}, MISSING + "this process runs without Carpool\n"),
        ([], {"CARPOOL_JOB_FD": "987", "CARPOOL_JOB": "2"}, "this process runs without Carpool"),
        (OF_A_JOB, JOIN | {"CARPOOL_JOIN_OPTIONS": "{"}, "CARPOOL_JOIN_OPTIONS is not a JSON"),
        (OF_A_JOB, JOIN | {"LD_PRELOAD": ""}, "libcarpool is not preloaded"),
    ],
    ids=["no channel", "its supervisor is gone", "options are no JSON", "not preloaded"],
)
def test_a_process_that_cannot_take_part_is_warned(
    job: Job, fake_torch: Path, lacks: Sequence[str], env: dict[str, str], why: str
) -> None:
    for name in lacks:
        del job.env[name]
    done = job.run("import torch; print('fine')", **env)
    assert (done.out, done.calls) == ("fine\n", [])
    assert why in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("outside", "script", "calls"),
    [
        (True, "import torch; print('fine')", ["join"]),
        (True, "print('fine')", []),
        (False, "import torch; print('fine')", ["attach"]),
    ],
    ids=["outside of jobs", "without torch", "of a job"],
)
def test_a_process_outside_of_jobs_may_join(
    job: Job, fake_torch: Path, outside: bool, script: str, calls: list[str]
) -> None:
    for name in OF_A_JOB if outside else ():
        del job.env[name]
    done = job.run(script, **JOIN)
    assert done.out == "fine\n"
    assert [name for name in done.names if name in ("join", "attach")] == calls
    assert calls or (done.err, done.calls) == ("", [])


def test_a_channel_closed_by_the_script_is_a_warning(job: Job, fake_torch: Path) -> None:
    """The number of the channel may mean another socket by then: nothing must be written to that."""
    done = job.run(
        """
        import os, socket
        fd = int(os.environ["CARPOOL_JOB_FD"])
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.dup2(other.fileno(), fd)
        import torch
        print("fine")
        """
    )
    assert (done.out, done.calls) == ("fine\n", [])
    assert "the job channel has been closed by the script" in done.err


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_multiprocessing_do_not_attach(job: Job, fake_torch: Path, method: str) -> None:
    done = job.run(
        f"""
        import multiprocessing
        def work(number):
            import torch
            return number + 1
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
        """
    )
    assert (done.out, done.err, done.calls) == ("[2, 3]\n", "", [])


@pytest.mark.parametrize("preload", [[], ["torch"]])
def test_what_a_fork_server_starts_takes_part_on_a_gpu(job: Job, fake_torch: Path, preload: list[str]) -> None:
    """The server itself has no seat, also if it imports torch; then its children ask with their first use."""
    done = job.run(
        f"""
        import multiprocessing, os
        def work(number):
            import torch
            return os.getpid()
        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload({preload})
            with context.Pool(1) as pool:
                print(*pool.map(work, [1]))
        """,
        CARPOOL_CUDA_DEVICE="GPU-1",
    )
    assert done.code == 0, done.err
    asked = [(name, b) for name, _, b in done.calls if name in ("attach", "watch_forks")]
    assert asked == ([("watch_forks", 0)] if preload else [("attach", int(done.out))])


@pytest.mark.parametrize("launcher", ["", "torch"])
@pytest.mark.parametrize("start", ["subprocess.run([sys.executable, '-c', 'import torch'], check=True)", FORK])
def test_a_child_asks_over_a_channel_of_its_own(job: Job, fake_torch: Path, launcher: str, start: str) -> None:
    """Also one that has inherited the main process's channel."""
    done = job.run(f"import os, subprocess, sys, {launcher or 'sys'}\n{start}")
    assert (done.code, "attach" in done.names) == (0, True)
    attached = [call for call in done.calls if call[1] != job.theirs.fileno()]
    assert len(attached) == (0 if launcher and "fork" in start else 1)
    assert len(done.calls) - len(attached) == (1 if launcher else 0)


def test_the_main_process_of_an_earlier_shim_has_no_pid(job: Job, fake_torch: Path) -> None:
    """Its shim has no door either."""
    done = job.run(
        """
        import os, sys
        if os.environ.pop("CARPOOL_JOB_PID", None):
            os.execv(sys.executable, [sys.executable, __file__])
        import torch
        """
    )
    assert [call[:2] for call in done.calls] == [("attach", job.theirs.fileno())]


def test_a_home_with_a_long_name(job: Job, fake_torch: Path) -> None:
    """Addresses of sockets are limited to 107 bytes."""
    home = job.directory / ("long" * 30)
    (home / "jobs" / "1").mkdir(parents=True)
    door = AttachSocket(str(home / "jobs" / "1"))
    done = job.run("import torch", CARPOOL_JOB_FD="", CARPOOL_HOME=str(home))
    assert (done.err.count("without Carpool"), done.names) == (0, ["attach"])
    admitted = door.admit()
    assert admitted is not None
    os.close(admitted)
    door.close()
    assert not (home / "jobs" / "1" / "door").exists()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of another environment, which contains nothing."""
    directory = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60)
    return str(directory / "bin" / "python")


def test_the_api_is_there_in_an_environment_without_carpool(job: Job, bare_python: str) -> None:
    done = job.run(
        """
        import carpool
        with carpool.iteration():
            carpool.progress(1, 10)
        """,
        python=bare_python,
    )
    assert (done.code, done.err) == (0, "")
    assert done.calls == [("iteration_begin", 0, 0), ("progress", 1, 10), ("iteration_end", 0, 0)]


def test_a_script_may_have_its_own_carpool(job: Job, bare_python: str, fake_torch: Path) -> None:
    (job.directory / "carpool.py").write_text("mine = 1\n")
    done = job.run("import carpool, torch; print(carpool.mine)", python=bare_python)
    assert (done.out, done.names) == ("1\n", ["attach"])


def test_a_start_loads_next_to_nothing(job: Job, bare_python: str) -> None:
    """It is in the way of every Python of a job; what it costs is the modules that it imports."""
    script = "import sys; print(*sys.modules)"
    inside = set(job.run(script, python=bare_python).out.split())
    alone = set(job.run(script, python=bare_python, PYTHONPATH="", LD_PRELOAD="").out.split())
    assert inside - alone <= {"__future__", "sitecustomize", "_carpool_startup"}
