"""The checks of `carpool doctor`: each check tries the feature itself rather than asking for a version."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from carpool.protocol.api import ControlGroups
from carpool.protocol.client import ClientError, DaemonClient, DaemonNotRunning
from carpool.protocol.display import user_name
from carpool.protocol.paths import Home, is_anothers, owner_of
from carpool.protocol.predictions import NONE_YET, DamagedChecks, check_words, read_checks
from carpool.protocol.units import format_size
from carpool.protocol.unix_http import LONGEST_PATH

MREMAP_MAYMOVE, MREMAP_DONTUNMAP = 1, 4
LITTLE_MEMORY = 512 << 20
LITTLE_DISK = 100 << 20
PATIENCE_S = 120.0
PROBE = "carpool.devices.cuda.probe"
TELEMETRY = "carpool.telemetry.capabilities"
GROUPS_ADVICE = (
    "let the daemon make control groups with that controller (docs/settings.md#control-groups), "
    "or remove the limit from limits.toml; then restart the daemon"
)
ADVICE = "run `nvidia-smi`: if that does not answer either, reload the NVIDIA driver or reboot"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The finding of a check, and what to do if it is not ``ok``."""

    name: str
    ok: bool
    found: str
    advice: str = ""  # what to do, if not ok


def run_checks(home: Path) -> Iterator[DoctorCheck]:
    """Check this machine and the daemon of ``home``, one check after the other; no check changes anything."""
    yield _kernel("memfd_create", "sharing memory between processes", _try_memfd)
    yield _kernel("mremap(MREMAP_DONTUNMAP)", "closing and opening arenas in microseconds (Linux 5.13)", _try_mremap)
    yield _kernel("pidfd_open", "noticing the end of a job at once (Linux 5.3)", _try_pidfd)
    yield _preload()
    yield _home(Home(home))
    yield _socket_path(Home(home))
    yield _disk(Home(home))
    yield _memory()
    yield from _daemon(home)
    yield predictions_check(Home(home))


def _kernel(name: str, use: str, attempt: object) -> DoctorCheck:
    try:
        attempt()  # type: ignore[operator]
    except OSError as error:
        kernel = os.uname().release
        return DoctorCheck(
            name,
            False,
            f"{error.strerror} (Linux {kernel})",
            f"needed for {use}: use a newer kernel, or allow the system call in the container's seccomp profile",
        )
    return DoctorCheck(name, True, use)


def _try_memfd() -> None:
    os.close(os.memfd_create("carpool-doctor", os.MFD_CLOEXEC))


def _try_pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _try_mremap() -> None:
    """Move the page tables of a shared mapping away while the range stays reserved."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    size = mmap.PAGESIZE
    fd = os.memfd_create("carpool-doctor", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        old = _mapped(libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0))
        new = libc.mremap(old, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, None)
        failure = ctypes.get_errno() if new == ctypes.c_void_p(-1).value else 0
        for address in {old, new} if not failure else {old}:
            libc.munmap(address, size)
        if failure:
            raise OSError(failure, os.strerror(failure))
    finally:
        os.close(fd)


def _mapped(address: int | None) -> int | None:
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return address


def _preload() -> DoctorCheck:
    from carpool.runtime import native

    path = native.library_path()
    try:
        ctypes.CDLL(os.fspath(path), mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError as error:
        return DoctorCheck(
            "libcarpool", False, str(error), "build the library (`make native` in a checkout), or reinstall Carpool"
        )
    return DoctorCheck("libcarpool", True, str(path))


def _home(home: Home) -> DoctorCheck:
    """Check that the home is writable, or another user's; for a missing one, check the nearest directory above it."""
    name = "state directory"
    place = _place(home)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        if is_anothers(home):
            return DoctorCheck(name, True, f"{place}, where the daemon of {user_name(owner_of(place) or 0)} writes")
        return DoctorCheck(
            name, False, f"{place}: {error.strerror}", "set CARPOOL_HOME to a directory that you may write to"
        )
    return DoctorCheck(name, True, f"{home.root}" + ("" if place == home.root else " (created at the first start)"))


def _socket_path(home: Home) -> DoctorCheck:
    length = max(len(os.fsencode(path)) for path in (home.socket, home.session_socket))
    fits = length <= LONGEST_PATH
    return DoctorCheck(
        "socket path",
        fits,
        f"{length} bytes; the limit is {LONGEST_PATH}",
        "" if fits else "set CARPOOL_HOME to a shorter path",
    )


def _place(home: Home) -> Path:
    """Return the directory of the home, or the nearest directory above it that this process can see."""
    return next(path for path in (home.root, *home.root.parents) if os.path.exists(path))  # noqa: PTH110 - no error


def _disk(home: Home) -> DoctorCheck:
    stat = os.statvfs(_place(home))
    free = stat.f_bavail * stat.f_frsize
    advice = "" if free >= LITTLE_DISK else "free disk space: the journal and the jobs' logs are stored there"
    return DoctorCheck("free disk space", free >= LITTLE_DISK, format_size(free), advice)


def _memory() -> DoctorCheck:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    advice = (
        ""
        if available >= LITTLE_MEMORY
        else "end other programs, or start with a small device: carpool up --device host:256MiB"
    )
    return DoctorCheck("free memory", available >= LITTLE_MEMORY, format_size(available), advice)


def _daemon(home: Path) -> Iterator[DoctorCheck]:
    try:
        with DaemonClient(home, timeout_s=5.0) as client:
            version, notice = client.version(), client.job_list(limit=0).notice
    except DaemonNotRunning:
        yield _not_running(Home(home))
        return
    except ClientError as error:
        yield DoctorCheck("daemon", False, error.info.message, error.info.hint)
        return
    if notice:
        yield DoctorCheck("daemon", False, notice, "carpool doctor --journal says more")
    else:
        yield DoctorCheck("daemon", True, f"version {version.version}, pid {version.pid}")
    yield from _control_groups(version.control_groups)


def _not_running(home: Home) -> DoctorCheck:
    if not is_anothers(home):
        return DoctorCheck("daemon", True, "not running; the first submission starts the daemon")
    advice = f"an administrator starts the daemon: systemctl start carpool, or carpool up --home {home.root}"
    return DoctorCheck("daemon", False, "not running", advice)


def predictions_check(home: Home) -> DoctorCheck:
    """Say how good the simulator's last prediction for this server was; a bad one is no problem of the machine."""
    try:
        checks = read_checks(home.predictions)
    except DamagedChecks as error:
        found, _, advice = str(error).rpartition("; ")
        return DoctorCheck("predictions", False, found, advice)
    return DoctorCheck("predictions", True, check_words(checks[-1]) if checks else NONE_YET)


def _control_groups(groups: ControlGroups) -> Iterator[DoctorCheck]:
    """Check the control groups: limits that do not hold are a problem, a daemon that may make no groups is none."""
    name = "control groups"
    if groups.found:
        yield DoctorCheck(name, True, groups.found)
    for problem in groups.problems:
        yield DoctorCheck(name, False, problem, GROUPS_ADVICE)


def gpu_checks(patience_s: float = PATIENCE_S) -> Iterator[DoctorCheck]:
    """Check the GPUs; without a GPU, yield one check that says so.  A missing optional feature is no problem."""
    sharing = list(_findings(PROBE, patience_s))
    yield from sharing
    if any(check.name.startswith("GPU ") for check in sharing):
        yield from _findings(TELEMETRY, patience_s)


def _findings(program: str, patience_s: float) -> Iterator[DoctorCheck]:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", program], capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        yield DoctorCheck("GPU", False, f"the driver does not answer within {patience_s:.0f} s", ADVICE)
        return
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        yield DoctorCheck("GPU", False, f"the test of the GPU ended with status {done.returncode}: {last}", ADVICE)
        return
    for finding in json.loads(done.stdout):
        ok, text = finding["ok"], finding["text"]
        if not ok and not finding["needed"]:
            ok, text = True, f"missing; {finding['advice']} ({text})"
        yield DoctorCheck(finding["name"], ok, text, "" if ok else finding["advice"])
