"""What commands print on terminals of several widths and into pipes: ``python -m tests.cli.rendered`` writes the files
in ``rendered/`` anew, to be read before they are committed; a test compares.

Colours are written as ``{green}``: the terminal's own colours, which suit a light and a dark background.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import msgspec

from carpool.cli.base import doctor_checks
from carpool.cli.commands.daemon import doctor
from carpool.cli.commands.jobs import estimate
from carpool.cli.main import main
from carpool.cli.render import formatting
from carpool.protocol.api import (
    AttemptInfo,
    DeviceDay,
    ErrorInfo,
    EventInfo,
    JobInfo,
    JobList,
    LimitInfo,
    LoadInfo,
    MovedInfo,
    PlacementInfo,
    PlacementRow,
    PointInfo,
    ReasonInfo,
    SpanInfo,
    TelemetryHistory,
    UsageHistory,
    UserDay,
    UserLimitsInfo,
)
from carpool.protocol.estimates import Answer as Estimated
from carpool.protocol.estimates import Prediction
from carpool.protocol.models import ModelFigures, ModelInfo, ModelList
from tests.cli.standin import Answer, StandIn, as_json, device, device_list, ended, job

FILES = Path(__file__).with_name("rendered")
WIDTHS = (80, 120, 200)
NOW_US = 1_790_000_000_000_000
MINUTE, TEN_S = 60_000_000, 10_000_000
GIB = 1 << 30
OWNERS = {1000: "alice", 1001: "bob", 1002: "mallory"}
MEMORY = ReasonInfo("memory", "waiting for memory: needs 3.1 GiB, of which host0 has 2.2 GiB free beside jobs 1 and 5")
OUT_OF_MEMORY = ReasonInfo("oom", "out of memory 3 times; the last time the job asked for 9.5 GiB of 8 GiB")


def since(minutes: float) -> int:
    return NOW_US - int(minutes * MINUTE)


JOBS = [
    job(1, name="resnet-lr0.1", holds_turn=True, submitted_us=since(61), persistent_bytes=3 * GIB // 2),
    job(2, name="[red]sweep[/red]-of-learning-rates-0.0001-warmup-500", owner=1001, phase="queued", device=None,
        lane=None, reason=MEMORY, iterations=0, iterations_total=None, persistent_bytes=0, ephemeral_bytes=0,
        submitted_us=since(2), started_us=None),
    job(3, command=["python", "train.py", "--config", "configs/a-long-path/of-a-file.yaml", "--seed", "3"],
        submitted_us=since(12), started_us=since(9), offloaded=True, attempt=2, iterations=1204,
        iterations_total=20_000),
    ended(4, "failed", name="two\nlines \x1b[31m", owner=1002, exit_code=1, reason=OUT_OF_MEMORY, ended_us=90 * MINUTE),
    ended(5, name="漢字のモデル", ended_us=MINUTE // 4),
]  # fmt: skip
ARRAY = [
    ended(6, name="sweep lr=0.1", array=6, index=0, submitted_us=since(30), started_us=since(28), ended_us=since(20),
        device_us=4 * MINUTE),
    ended(7, "failed", name="sweep lr=0.2", array=6, index=1, exit_code=1, submitted_us=since(30),
        started_us=since(20), ended_us=since(18), device_us=MINUTE),
    job(8, name="sweep lr=0.3", array=6, index=2, submitted_us=since(30)),
    job(9, name="sweep lr=0.4", array=6, index=3, phase="queued", device=None, lane=None, iterations=0,
        persistent_bytes=0, ephemeral_bytes=0, submitted_us=since(30), started_us=None,
        reason=ReasonInfo("array", "1 job of array 6 runs at once")),
]  # fmt: skip
ENDED = {"succeeded": 10, "timed_out": 2, "cancelled": 3, "failed": 4, "lost": 1, "refused": 1}
USAGE = UsageHistory(
    since(3000),
    since(0),
    [
        UserDay("2026-09-20", 1000, "alice", 750 * MINUTE, 12, 36 * MINUTE, ENDED),
        UserDay("2026-09-21", 1000, "alice", 60 * MINUTE, 0, 0, {}),
        UserDay("2026-09-21", 1001, "\x1b[31mbob", MINUTE, 1, MINUTE // 60, {"failed": 1}),
    ],
    [DeviceDay("2026-09-20", "host0", 615_000), DeviceDay("2026-09-21", "host0", None)],
)
LIMITS = UserLimitsInfo(1000, "alice", [
    LimitInfo("user_running", 2, 4, "jobs that run at once"),
    LimitInfo("memory", 3 * GIB, None, "device memory of all jobs together"),
    LimitInfo("max_time_us", None, 60 * MINUTE, "longest time limit of a job"),
    LimitInfo("group.vision", 0, 1, "jobs of the group vision that run at once, of all users together, also in arrays"),
], 90 * MINUTE, 1440 * MINUTE)  # fmt: skip
DEVICE = device([1, 3], holder=1, waiting=[3], moved=MovedInfo(3 * GIB, 500_000, 2 * GIB, 250_000))
PLACEMENT = PlacementInfo(2, "magm", True, 5, [
    PlacementRow("cuda1", False, ReasonInfo("memory", MEMORY.text), None, 2 * GIB, 3 * GIB, GIB, [4, 7], [7],
                 LoadInfo(910_000, 950_000, 600_000, None), [-2 * GIB, 2], 1_800_000),
    PlacementRow("cuda0", False, ReasonInfo("busy", "the risk of slowing each other down is 0.95 (limit 0.80)"), None,
                 8 * GIB, 3 * GIB, 0, [], [], LoadInfo(0, 0), [-8 * GIB, 0]),
])  # fmt: skip
HISTORY = TelemetryHistory("host0", 0, 2 * MINUTE, MINUTE, "memory", [
    PointInfo(since(2 - n), {
        "busy_ppm": SpanInfo(0, 300_000 * n, 500_000 * n, 60),
        "used_bytes": SpanInfo(0, GIB, GIB, 60),
    })
    for n in (1, 2)
])  # fmt: skip
#: Of five minutes, as `carpool top` asks for it.
LOAD = TelemetryHistory("host0", NOW_US - 5 * MINUTE, NOW_US, TEN_S, "memory", [
    PointInfo(NOW_US // TEN_S * TEN_S - n * TEN_S, {"busy_ppm": SpanInfo(0, 35_000 * n, 10**6, 5)})
    for n in range(25)
])  # fmt: skip
MODEL = ModelInfo("resnet", 1001, "shop.models:resnet", "/data/weights/resnet50-of-this-spring.safetensors", 50_000, 8,
                  2_000, 100, "/venv/bin/python", "/shop", 37, since(600), "ready", "",
                  ModelFigures(12.35, 6_100, 48_230, 2, 1, 3 * GIB), {"host0": GIB, "host1": GIB})  # fmt: skip
BROKEN = msgspec.structs.replace(
    MODEL,
    name="bert",
    weights=None,
    state="unavailable",
    reason="its factory raised ValueError: there is no vocabulary",
    figures=None,
    on_devices={},
)
EVENTS = [
    EventInfo(seq, since(1500 - 370 * seq), seq, kind, number, {"job": number, **data})
    for seq, (kind, number, data) in enumerate([
        ("SettingsChanged", None, {"settings": {"policy": "srtf", "placement": "magm"}}),
        ("Submitted", 2, {"spec": {"name": "[red]\x1b[31m", "after": [1]}}),
        ("DenyMemory", 2, {"memory_class": "persistent", "reason": {"code": "oom", "text": OUT_OF_MEMORY.text}}),
        ("CloseLane", None, {"lane": 4}),
    ], 1)
]  # fmt: skip
POLICY = {
    "name": "fair", "available": ["fair", "srtf", "fifo", "las", "pack", "sjf", "srsf", "tq"], "fault": "list index",
    "settings": {"quantum_us": 50_000, "max_lanes": None, "max_time_us": 60 * MINUTE, "use_half_life_us": 1440 * MINUTE,
                 "host_store": 8 * GIB, "risk_active_ppm": 800_000},
    "placement": "magm",
    "placements": ["magm", "exclusive", "best-fit", "first-fit", "lug", "round-robin"],
}  # fmt: skip
CHECKS = [
    doctor_checks.DoctorCheck("memory files", True, "memfd_create works", ""),
    doctor_checks.DoctorCheck(
        "library", False, "libcarpool.so is not where it should be: /opt/carpool/lib/libcarpool.so",
        "reinstall carpool with a C compiler there: apt-get install gcc libc6-dev"),
]  # fmt: skip
ANSWERS = [
    Estimated(
        "faketensor", Prediction(GIB, 3 * GIB, 4 * GIB, 5 * GIB, "faketensor", "8 iterations rehearsed without data")
    ),
    Estimated("horus", error=ErrorInfo("no_batch", "the batch size is not known", "give it with --batch-size")),
]
#: The name of the file, and the command.
COMMANDS = {
    "ls": ("ls",),
    "history": ("history", "--user", "*"),
    "usage": ("usage",),
    "limits": ("limits",),
    "set": ("set",),
    "top": ("top", "--once"),
    "show": ("show", "3"),
    "show-failed": ("show", "4"),
    "show-why": ("show", "2", "--why"),
    "devices": ("devices",),
    "devices-history": ("devices", "host0", "--history", "2m"),
    "model-ls": ("model", "ls"),
    "model-show": ("model", "show", "resnet"),
    "policy": ("policy",),
    "doctor": ("doctor",),
    "estimate": ("estimate", "--model", "nets.py:resnet50"),
    "wait": ("wait", "5", "4"),
    "wait-array": ("wait", "6[0-1]"),
    "set-all": ("set", "--all"),
    "events": ("events",),
    "unknown-job": ("show", "77"),
}


class Stream(io.TextIOWrapper):
    """A terminal, or a pipe, in memory."""

    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


def variants(command: str) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Titles, environments, and whether the output is a terminal."""
    for width in WIDTHS:
        yield f"{width} columns", {"COLUMNS": str(width)}, True
    yield "80 columns, NO_COLOR", {"COLUMNS": "80", "NO_COLOR": "1"}, True
    yield "pipe", {"COLUMNS": "80"}, False


def rendered(standin: StandIn, name: str) -> str:
    """All that a file of ``rendered/`` has."""
    parts = []
    for title, environment, terminal in variants(name):
        shown = run(standin, COMMANDS[name], environment, terminal)
        parts.append(f"===== {title} =====\n{visible(shown)}")
    return "".join(parts)


def run(standin: StandIn, arguments: tuple[str, ...], environment: dict[str, str], terminal: bool) -> str:
    """What the command prints, on standard output and then on standard error."""
    out, err = Stream(terminal), Stream(terminal)
    own = {"PATH": os.environ["PATH"], "CARPOOL_HOME": str(standin.home), "TERM": "xterm-256color", "TZ": "UTC"}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, own | environment, clear=True))
        for target, replacement in ((sys, {"stdout": out, "stderr": err}), (formatting, {"now_us": lambda: NOW_US})):
            stack.enter_context(mock.patch.multiple(target, **replacement))
        stack.enter_context(mock.patch.object(formatting, "owner", OWNERS.__getitem__))
        stack.enter_context(mock.patch.multiple(doctor, run_checks=lambda home: CHECKS, gpu_checks=list))
        stack.enter_context(mock.patch.object(estimate, "_answers", lambda *_, **__: ANSWERS))
        stack.enter_context(utc())
        main(arguments)
    return out.text() + err.text()


@contextmanager
def utc() -> Iterator[None]:
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        time.tzset()


SEQUENCES = {"0": "", "1": "bold", "2": "dim", "31": "red", "32": "green"}


def visible(text: str) -> str:
    """Colours as words; a sequence that suits only some backgrounds is a KeyError."""
    return re.sub(r"\x1b\[([0-9;]*)m", lambda found: f"{{{SEQUENCES[found[1]]}}}", text)


def prepare(standin: StandIn) -> None:
    def answer(value: object) -> Answer:
        return Answer(msgspec.json.encode(value))

    def listed(request: object) -> Answer:
        wanted = request.query.partition("phase=")[2].partition("&")[0].split(",")  # type: ignore[attr-defined]
        if "array=" in request.query:  # type: ignore[attr-defined]
            return answer(JobList(ARRAY if "array=6" in request.query else []))  # type: ignore[attr-defined]
        return answer(JobList([one for one in (*JOBS, *ARRAY) if wanted == [""] or one.phase in wanted]))

    def measured(request: object) -> Answer:
        return answer(LOAD if "step=10000000" in request.query else HISTORY)  # type: ignore[attr-defined]

    first = AttemptInfo(1, "host0", since(11), since(9), 137, 9, "killed by SIGKILL", GIB, GIB, "log.1")
    shown: list[JobInfo] = [*JOBS[:2], msgspec.structs.replace(JOBS[2], attempts=[first]), *JOBS[3:], *ARRAY]
    standin.reactions |= {f"GET /v1/jobs/{one.id}": answer(one) for one in shown}
    standin.reactions |= {f"GET /v1/jobs/{one.id}/wait": answer(one) for one in shown}
    standin.reactions |= {
        "GET /v1/jobs": listed,
        "GET /v1/devices": device_list(DEVICE, device([], name="host1")),
        "GET /v1/devices/host0/telemetry": measured,
        "GET /v1/devices/host1/telemetry": measured,
        "GET /v1/policy": as_json(POLICY),
        "GET /v1/limits": answer(LIMITS),
        "GET /v1/usage": answer(USAGE),
        "GET /v1/models": answer(ModelList([BROKEN, MODEL])),
        "GET /v1/models/resnet": answer(MODEL),
        "GET /v1/jobs/2/placement": answer(PLACEMENT),
        "GET /v1/events": Answer(b"".join(msgspec.json.encode(event) + b"\n" for event in EVENTS)),
    }


def write() -> None:
    FILES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, StandIn(Path(directory) / "home") as standin:
        prepare(standin)
        for name in COMMANDS:
            (FILES / f"{name}.txt").write_text(rendered(standin, name))


if __name__ == "__main__":
    write()
