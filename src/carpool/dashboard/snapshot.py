"""The daemon's state for the page, kept current by events and by asking for rows that changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from carpool.dashboard.upstream import DaemonRefused, Upstream
from carpool.facts.fact import Fact, What
from carpool.facts.fold import FREQUENT
from carpool.facts.recorded import EventClock, RecordedFacts
from carpool.protocol.api import EventInfo

LIVE = "queued,starting,running,stopping"
ENDED = 500  # the newest jobs that have ended
AT_ONCE = 50  # most jobs that are asked for one by one; for more, the list is asked for
MOST_TURNS = 5000  # in one message
#: Frequent kinds of events that change only turns and figures, which the events contain.
OF_TURNS = FREQUENT | {"Sampled", "Tick"}
OF_SETTINGS = frozenset(("SettingsChanged", "PolicyTimedOut"))
COUNTED = ("iterations", "device_us")
Row = dict[str, Any]


class LiveTurn(NamedTuple):
    """A turn, which the page gets as a list.  Times: microseconds of the wall clock; no end: the turn goes on."""

    device: str
    lane: int
    job: int
    begin_us: int
    end_us: int | None
    cause: str


class _Rows(msgspec.Struct):
    jobs: list[Row]


class _Services(msgspec.Struct):
    models: list[msgspec.Raw] = []
    engines: list[msgspec.Raw] = []


class DashboardSnapshot:
    """One state of a daemon, from `load` on."""

    def __init__(self, daemon: Upstream, user: dict[str, object]) -> None:
        self._daemon, self._user = daemon, user
        self._jobs: dict[int, Row] = {}
        self._dirty: set[int] = set()
        self._counted: set[int] = set()
        self._turns: list[LiveTurn] = []
        self.begin()
        self._settings = False
        self._services: dict[str, list[msgspec.Raw]] = {}
        self._devices: Row = {}
        self.too_much = False

    def begin(self) -> None:
        """Forget open turns and lanes: events come anew, and may not tell of ends in between."""
        self._lanes: dict[int, str] = {}
        self._facts = RecordedFacts(EventClock().us)

    async def load(self) -> dict[str, object]:
        """Ask the daemon for everything, and return the message `state`."""
        self._dirty, self._counted, self._turns, self.too_much = set(), set(), [], False
        live = (await self._daemon.get(f"/v1/jobs?phase={LIVE}", _Rows)).jobs
        ended = (await self._daemon.get(f"/v1/jobs?phase=ended&limit={ENDED}", _Rows)).jobs
        self._jobs = {row["id"]: row for row in live}
        self._services = {}
        await self._look_at_devices()
        rest = {"devices": self._devices, **await self._new_services(), "policy": await self._policy()}
        version = await self._daemon.get("/v1/version", msgspec.Raw)
        jobs = sorted((*ended, *live), key=lambda row: row["id"])
        state = {"kind": "state", "connected": True, "version": version, "user": self._user, "jobs": jobs}
        return {**state, **rest, "more": len(ended) == ENDED}

    def heard(self, event: EventInfo) -> None:
        """Note what an event changes: what has to be asked for, or sent."""
        for told in self._facts.read(event):
            if isinstance(told, Fact) and told.what == What.TURN:
                self._turn(told)
        self._count(event)
        if event.kind in OF_SETTINGS:
            self._settings = True
        elif event.job is not None and event.kind not in OF_TURNS:
            self._dirty.add(event.job)
        self.too_much = self.too_much or len(self._turns) > MOST_TURNS

    def _turn(self, turn: Fact) -> None:
        """Note a turn that begins or ends; of one that began before all events only who has it is shown."""
        self._change(turn.job, {"holds_turn": turn.end_us is None})
        lane = self._lane_of(turn.job) if turn.lane is None else turn.lane
        if turn.start_us is not None and lane is not None:
            device = turn.device or self._lanes.get(lane, "")
            self._turns.append(LiveTurn(device, lane, turn.job, turn.start_us, turn.end_us, turn.how))

    def _count(self, event: EventInfo) -> None:
        usage = event.data.get("usage")
        if isinstance(usage, dict) and event.job is not None:
            self._change(event.job, {name: usage[name] for name in COUNTED if name in usage})

    def _lane_of(self, job: int) -> int | None:
        row = self._jobs.get(job)
        return None if row is None else row["lane"]

    def _change(self, job: int, fields: Row) -> None:
        """Change fields of a job's row as an event says, without asking for the row."""
        if job in self._jobs:
            self._jobs[job].update(fields)
            self._counted.add(job)

    def turns(self) -> dict[str, object]:
        """Return the turns since the last call."""
        turns, self._turns = self._turns, []
        return {"turns": turns} if turns else {}

    async def changes(self) -> dict[str, object]:
        """Return all other changes: jobs, devices, models, settings."""
        removed = await self._ask_for_jobs()
        changed = [self._jobs[number] for number in sorted(self._counted) if number in self._jobs]
        self._counted = set()
        found: dict[str, object] = {"jobs": changed, "removed": removed}
        found["devices"] = self._devices if await self._look_at_devices() else {}
        found["policy"] = await self._policy() if self._settings else {}
        return {name: value for name, value in found.items() if value} | await self._new_services()

    async def _ask_for_jobs(self) -> list[int]:
        """Ask for jobs that have changed; return the ids of jobs that no longer exist."""
        dirty, self._dirty = self._dirty, set()
        if len(dirty) > AT_ONCE:
            rows = (await self._daemon.get(f"/v1/jobs?phase={LIVE}", _Rows)).jobs
            self._keep([row for row in rows if row["id"] in dirty])
            dirty -= {row["id"] for row in rows}
            dirty, self._dirty = set(sorted(dirty)[:AT_ONCE]), set(sorted(dirty)[AT_ONCE:])
        return [number for number in sorted(dirty) if not await self._ask_for(number)]

    async def _ask_for(self, number: int) -> bool:
        try:
            self._keep([await self._daemon.get(f"/v1/jobs/{number}", Row)])
        except DaemonRefused as error:
            if error.status != 404:
                raise
            return self._jobs.pop(number, None) is None  # True: a job that this user does not see
        return True

    def _keep(self, rows: list[Row]) -> None:
        for row in rows:
            self._jobs[row["id"]] = row
            self._counted.add(row["id"])

    def forget_ended(self) -> None:
        """Forget rows of ended jobs: they have been sent, and do not change any more."""
        for number in [number for number, row in self._jobs.items() if row["phase"] == "ended"]:
            del self._jobs[number]

    async def _look_at_devices(self) -> bool:
        """Ask for the devices, and return whether anything about them has changed."""
        before, self._devices = self._devices, await self._daemon.get("/v1/devices", Row)
        devices = self._devices["devices"]
        self._lanes |= {lane["id"]: device["id"] for device in devices for lane in device["lanes"]}
        return before != self._devices

    async def _policy(self) -> Row:
        self._settings = False
        return await self._daemon.get("/v1/policy", Row)

    async def _new_services(self) -> dict[str, object]:
        """Ask for models and engines; return the lists that have changed, empty ones, too."""
        answers = [await self._daemon.get(f"/v1/{name}", _Services) for name in ("models", "engines")]
        now = {"models": answers[0].models, "engines": answers[1].engines}
        changed = {name: rows for name, rows in now.items() if _differ(self._services.get(name), rows)}
        self._services = now
        return {**changed}


def _differ(before: list[msgspec.Raw] | None, rows: list[msgspec.Raw]) -> bool:
    return before is None or [*map(bytes, before)] != [*map(bytes, rows)]
