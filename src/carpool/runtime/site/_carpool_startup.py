"""Start-up of a job's Python: decide whether this process attaches, and wait for torch.

Every Python of a job pays for this file, so it imports nothing that ``site`` has not imported already.  Attaching
itself happens right after the script's own ``import torch``; scripts without torch stay plain processes.
"""

from __future__ import annotations

import os
import stat
import sys

PLAIN = "; this process runs without Carpool"
TYPE_CHECKING = False  # importing typing would cost more than all the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def start(package: str) -> None:
    """Prepare this process; ``package`` is the directory of the package ``carpool``."""
    sys.meta_path.append(CarpoolFinder(package))
    if _may_join():
        after_import("torch", lambda: _try(lambda: _join(package), PLAIN), before=lambda: _prepare(package))
    if not _may_attach():
        return
    channel = InheritedChannel.from_environment()
    server = os.getpid() if _helper().startswith(FORK_SERVER) else None  # the server's forks attach, not the server
    after_import(
        "torch", lambda: _try(lambda: _attach(package, channel, server), PLAIN), before=lambda: _prepare(package)
    )


def _may_join() -> bool:
    """Whether the environment tells this process to join; False inside a job, whose processes belong to the job."""
    disabled = os.environ.get("CARPOOL_DISABLE", "") not in ("", "0")
    return "CARPOOL_JOIN" in os.environ and "CARPOOL_JOB" not in os.environ and not (disabled or _helper())


def _join(package: str) -> None:
    """Prepare joining; libcarpool joins when this process is about to use its device."""
    if _runtime(package, "native").preloaded() is None:
        raise RuntimeError("libcarpool is not preloaded (LD_PRELOAD is not what carpool env has printed)")
    cuda = bool(os.environ.get("CARPOOL_CUDA_DEVICE"))
    path = os.environ["CARPOOL_JOIN"]
    _runtime(package, "torch_hooks.hooks").install_joining(path, _introduction(), cuda, after_import)


#: A packet has 64 KiB; the command is only shown to users.
LONGEST_COMMAND = 16 * 1024


def _introduction() -> bytes:
    """Return the message with which this process joins (`carpool.protocol.session.Join`).  Raises ValueError."""
    import json

    options = _options()
    with open("/proc/self/cmdline", "rb") as file:
        arguments = file.read(LONGEST_COMMAND).decode(errors="replace").rstrip("\0").split("\0")
    about = {"argv": arguments, "directory": os.getcwd(), "token": os.environ.get("CARPOOL_JOIN_TOKEN", "")}  # noqa: PTH109
    text = json.dumps({"type": "join", "options": options, **about}, ensure_ascii=False)
    return text.encode(errors="replace")


def _options() -> dict[str, object]:
    """Return the options of `carpool env`, replaced by those of the pod where it has any.  Raises ValueError."""
    import json

    options: dict[str, object] = {}
    for name in ("CARPOOL_JOIN_OPTIONS", "CARPOOL_POD_OPTIONS"):
        text = os.environ.get(name) or "{}"
        try:
            options |= json.loads(text if "{" in text else bytes.fromhex(text))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} is not a JSON object ({error})") from None
    pod = os.environ.get("CARPOOL_POD_NAME")
    return {"name": pod} | options if pod else options


def _may_attach() -> bool:
    """Whether this process may attach; False outside of jobs, and for workers and servers of multiprocessing."""
    if os.environ.get("CARPOOL_DISABLE", "") not in ("", "0") or not {"CARPOOL_JOB", "CARPOOL_HOME"} <= {*os.environ}:
        return False
    # On a GPU, and in an engine, such a worker may compute; on a GPU one that only loads data never asks for a seat.
    computes = {"CARPOOL_CUDA_DEVICE", "CARPOOL_ENGINE"} & {*os.environ}
    workers = (SPAWNED, FORK_SERVER) if computes else ()
    return not (helper := _helper()) or helper.startswith(workers)


#: The beginnings of the commands of multiprocessing's processes.
SPAWNED, FORK_SERVER = b"from multiprocessing.spawn", b"from multiprocessing.forkserver"


def _helper() -> bytes:
    """Return the command of a process of multiprocessing; empty for any other process."""
    with open("/proc/self/cmdline", "rb") as file:  # sys.argv is not there yet, sys.orig_argv only since 3.10
        arguments = file.read().split(b"\0")
    return next((a for a in arguments if a.startswith(b"from multiprocessing.")), b"")


class InheritedChannel:
    """The job channel that the shim left to the job's main process.

    Its identity is noted before the script runs: a process on the way may have closed the descriptor, whose number may
    later belong to a socket of the script.
    """

    def __init__(self, fd: int, identity: tuple[int, int]) -> None:
        self.fd, self._identity = fd, identity

    @staticmethod
    def from_environment() -> InheritedChannel | None:
        """Return the inherited channel; None in all processes but the main one, which get channels of their own."""
        try:
            fd = int(os.environ["CARPOOL_JOB_FD"])
            identity = _socket_identity(fd)
        except (KeyError, ValueError, OSError, OverflowError):
            return None
        return InheritedChannel(fd, identity) if identity and _is_main() else None

    def is_open(self) -> bool:
        """Whether the descriptor is still the channel that the shim has left."""
        import socket

        try:
            if _socket_identity(self.fd) != self._identity:
                return False
            with socket.socket(fileno=os.dup(self.fd)) as probe:
                return (probe.family, probe.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return False


def _socket_identity(fd: int) -> tuple[int, int] | None:
    status = os.fstat(fd)
    return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None


def _is_main() -> bool:
    """Whether this is the job's main process; True under earlier shims, which do not say: the descriptor decides."""
    me = str(os.getpid())
    return os.environ.get("CARPOOL_JOB_PID", me) == me


def _own_channel() -> int:
    """Open a channel for this process through the job's attach socket (``door``).  Raises OSError.

    The path goes through the directory's descriptor: socket addresses are limited to 107 bytes.
    """
    import socket

    directory = os.path.join(os.environ["CARPOOL_HOME"], "jobs", os.environ["CARPOOL_JOB"])  # noqa: PTH118
    place = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            channel.connect(f"/proc/self/fd/{place}/door")
            return channel.detach()
    finally:
        os.close(place)


def _prepare(package: str) -> None:
    if os.environ.get("CARPOOL_CUDA_DEVICE"):
        _try(lambda: _runtime(package, "torch_hooks.alloc_conf").fix_segments(os.environ))
        after_import("torch.cuda", lambda: _try(lambda: _watch_cuda(package)))


def _try(action: Callable[[], None], then: str = "") -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the user's program runs in any case
        print(f"carpool: warning: {error}{then}", file=sys.stderr)


def _watch_cuda(package: str) -> None:
    """Show the process only the job's devices, also if it has no seat."""
    _runtime(package, "torch_hooks.alloc_conf").watch(sys.modules["torch._C"])
    library = _runtime(package, "native").preloaded()
    if library is not None:
        _runtime(package, "torch_hooks.visible_devices").watch(sys.modules["torch.cuda"], library.visible_devices)


def _attach(package: str, channel: InheritedChannel | None, server: int | None) -> None:
    if "CARPOOL_JOB_FD" not in os.environ:
        raise RuntimeError("CARPOOL_JOB_FD is missing from the environment of this job's process")
    if _runtime(package, "native").preloaded() is None:
        return
    if server == os.getpid():
        _runtime(package, "torch_hooks.hooks").install_for_forks(after_import)
        return
    inherited = channel if _is_main() else None  # not in a fork
    if inherited is not None and not inherited.is_open():
        raise RuntimeError("the job channel has been closed by the script")
    fd = _own_channel() if inherited is None else inherited.fd
    if not _runtime(package, "torch_hooks.hooks").install(fd, after_import) and inherited is None:
        os.close(fd)


def _runtime(package: str, name: str) -> ModuleType:
    """Import a module of `carpool.runtime` under a private name: the script may have its own module called carpool."""
    import importlib.util

    alias = "_carpool_runtime"
    if alias not in sys.modules:
        directory = os.path.join(package, "runtime")  # noqa: PTH118 - see the head of this file
        spec = importlib.util.spec_from_file_location(
            alias,
            os.path.join(directory, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[directory],
        )
        assert spec is not None and spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return importlib.import_module(f"{alias}.{name}")


class CarpoolFinder:
    """Finds the package ``carpool`` in environments that do not contain it; the last finder, for this package only."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of the package ``carpool``; None for any other module."""
        if name != "carpool":
            return None
        import importlib.util

        file = os.path.join(self._package, "__init__.py")  # noqa: PTH118
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[self._package])


def after_import(name: str, action: Callable[[], None], before: Callable[[], None] | None = None) -> None:
    """Call ``action`` once, as soon as module ``name`` has been imported (at once if it has been).

    ``before`` is called right before the module is executed, unless it has been imported.
    """
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, AfterImport(name, action, before))


class AfterImport:
    """A finder that finds nothing itself: it tracks the import of one module until it is complete."""

    def __init__(self, name: str, action: Callable[[], None], before: Callable[[], None] | None = None) -> None:
        self._name, self._action, self._before = name, action, before
        self._asking = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the other finders' spec of the module, with a loader that tells of the end of the import."""
        if name != self._name or self._asking:
            return None
        self._asking = True  # another finder of this kind may ask all finders in turn, this one included
        try:
            spec = self._ask_the_others(name, path, target)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = FollowingLoader(spec.loader, self._imported, self._before)  # type: ignore[assignment]
        return spec

    def _ask_the_others(self, name: str, path: object, target: object) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if finder is not self else None  # type: ignore[arg-type]
            if spec is not None:
                return spec
        return None

    def _imported(self) -> None:
        if self in sys.meta_path:  # the module may have been found (find_spec) more often than imported
            sys.meta_path.remove(self)
            self._action()


class FollowingLoader:
    """Replaces a module's loader until the module is executed; the module keeps the real loader."""

    def __init__(self, loader: object, imported: Callable[[], None], before: Callable[[], None] | None) -> None:
        self._loader, self._imported, self._before = loader, imported, before

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with its own loader, between the two calls."""
        module.__loader__ = self._loader  # type: ignore[assignment]
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # type: ignore[assignment]
        if self._before is not None:
            self._before()
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        self._imported()
