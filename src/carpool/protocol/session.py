"""Messages between a shim and the daemon: one JSON object per packet (`carpool.protocol.packets`).

The shim's side (`carpool.runtime.shim.__main__`) is written with the standard library only, because it also starts jobs
whose interpreter has nothing else; these types are the daemon's side and the definition of the messages.
"""

from __future__ import annotations

import msgspec


class Register(msgspec.Struct, tag_field="type", tag="register", frozen=True):
    """First message, or the first ones: what a shim keeps may not fit into one.

    Descriptors: the daemon's end of the job channel (of the first message only), then those named in ``kept``.
    """

    job: int
    shim_pid: int
    child_pid: int | None = None
    attached_pid: int | None = None
    kept: list[str] = []
    attempt: int = 1  # which start of the job it supervises
    more: bool = False  # another one follows


class Channel(msgspec.Struct, tag_field="type", tag="channel", frozen=True):
    """A further process of the job has come: one descriptor, the daemon's end of its channel, kept as ``name``."""

    name: str


class Started(msgspec.Struct, tag_field="type", tag="started", frozen=True):
    """The job's main process runs."""

    pid: int


class StartFailed(msgspec.Struct, tag_field="type", tag="start_failed", frozen=True):
    """The job's main process could not be started; ``text`` says why."""

    text: str


class Exited(msgspec.Struct, tag_field="type", tag="exited", frozen=True):
    """The main process ended and ``exit.json`` says the same.  Exactly one of the first two fields is set."""

    code: int | None = None
    signal: int | None = None
    host_memory: bool = False  # killed while the kernel ended a process of its control group for want of memory


class Taken(msgspec.Struct, tag_field="type", tag="taken", frozen=True):
    """Answer to `Take`: all of it is in the store now, ``bytes`` of it; or why not (text for people, or see below)."""

    error: str | None = None
    bytes: int = 0


#: The process itself is in the middle of moving its memory, and only that process can continue.
BUSY = "busy"
#: The seat no longer asks for the offload.
WITHDRAWN = "withdrawn"


class Join(msgspec.Struct, tag_field="type", tag="join", frozen=True):
    """First message of a process that no shim has started: it is to be a job of its own.

    One descriptor: the daemon's end of its channel.  The command, the directory and the options are for people and for
    placement; who the process is, the connection says.
    """

    options: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))  # `JoinOptions`
    argv: list[str] = []
    directory: str = "/"
    token: str = ""  # `carpool.protocol.environment.token`


class JoinOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of ``carpool env``: fields of `carpool.protocol.api.SubmitRequest`."""

    name: str = ""
    persistent_bytes: int | None = None
    ephemeral_bytes: int | None = None
    weight: int = 100
    device: str | None = None
    exclusive: bool = False
    engine: bool = False
    iterations: int | None = None
    duration_us: int | None = None
    time_us: int | None = None
    launcher: str = ""
    launcher_ends_us: int | None = None


class Rejoin(msgspec.Struct, tag_field="type", tag="rejoin", frozen=True):
    """First message of a process that has joined an earlier daemon, or the first ones, as with `Register`."""

    job: int
    attempt: int = 1
    kept: list[str] = []
    more: bool = False


class LastWord(msgspec.Struct, tag_field="type", tag="last_word", frozen=True):
    """A process that has joined is about to exit with this code.  What the kernel says counts more."""

    code: int


class Leave(msgspec.Struct, tag_field="type", tag="leave", frozen=True):
    """A process that has joined, and has no seat yet, goes on without: it waits no longer."""


FromShim = Register | Channel | Started | StartFailed | Exited | Taken | Join | Rejoin | LastWord | Leave


class Start(msgspec.Struct, tag_field="type", tag="start", frozen=True):
    """Start the job.  One descriptor: a memfd that holds a `StartSpec` as JSON (environments outgrow packets)."""


class StartSpec(msgspec.Struct, frozen=True):
    """A process that a shim starts, with the whole environment, and nothing of the shim's own."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    threads: int | None = None  # bound for OpenMP; None: leave it to the job
    cuda_device: str = ""  # uuid of its GPU; "": it runs on none
    keeps_all: bool = False  # whether all its memory is persistent: it is an engine
    log_limit: int | None = None  # bytes of its log that are kept; None: all
    core_dumps: bool = True  # whether the job may leave any
    output: str | None = None  # the user's own file for standard output; None: the job's log
    error: str | None = None  # the same for standard error; None: where standard output goes


class Keep(msgspec.Struct, tag_field="type", tag="keep", frozen=True):
    """Keep the attached descriptors under these names and give them back at the next registration."""

    names: list[str]
    attached_pid: int | None = None


class Drop(msgspec.Struct, tag_field="type", tag="drop", frozen=True):
    """Close the descriptors that are kept under these names; unknown names are no error."""

    names: list[str]


class Signal(msgspec.Struct, tag_field="type", tag="signal", frozen=True):
    """Send a signal to all processes of the job."""

    signal: int


class Take(msgspec.Struct, tag_field="type", tag="take", frozen=True):
    """Move a stopped process's memory from its bank to its store: the names of kept descriptors.  Answer: `Taken`."""

    bank: str
    store: str


class Refused(msgspec.Struct, tag_field="type", tag="refused", frozen=True):
    """The registration is not accepted: unknown job, another user's, or one that has ended."""

    text: str


class Joined(msgspec.Struct, tag_field="type", tag="joined", frozen=True):
    """Answer to `Join`: the process is this job.  It asks for its seat over its channel, and waits there."""

    job: int
    attempt: int = 1


ToShim = Joined | Start | Keep | Drop | Signal | Take | Refused

decode_from_shim = msgspec.json.Decoder(FromShim).decode
