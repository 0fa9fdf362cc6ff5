"""The daemon's parts around a seat, in this process, without a core and without jobs: tests play both."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from carpool.core import commands
from carpool.core.events import Event
from carpool.core.model import MIB, Memory, Oversubscribe, Settings
from carpool.core.policies.view import DeviceView
from carpool.daemon.build import Built, Parts
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.hooks.base import JobHooks
from carpool.daemon.jobs.seat_table import OwnedFd
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.jobs.watchlist import Recovery, Watchlist
from carpool.daemon.privileges.direct import DirectPrivileges
from carpool.daemon.seats.ledger import GrantLedger
from carpool.daemon.shims.shim_table import ShimLinks
from carpool.daemon.shims.spawn import ShimSpawner
from carpool.daemon.system.in_flight import InFlightTable
from carpool.devices.host import HostDevice
from carpool.protocol.api import SubmitRequest
from carpool.protocol.packets import readable
from carpool.protocol.paths import Home
from carpool.protocol.seat import PACKET_BYTES, PROTOCOL, Packet, PacketType, Seat
from carpool.protocol.session import Register

CAPACITY = 64 * MIB


@dataclass
class Client:
    """A job as the test plays it: its end of the channel, its seat, what came with SETUP, what its shim keeps."""

    job: JobRecord
    channel: socket.socket
    seat: Seat
    setup: Packet
    fds: list[int]
    kept: dict[str, int] = field(default_factory=dict)

    def receive(self) -> tuple[Packet, list[int]]:
        """The next packet and its descriptors, which are closed with the rig."""
        data, fds, _, _ = socket.recv_fds(self.channel, PACKET_BYTES, 8, socket.MSG_DONTWAIT)
        self.fds += fds
        return Packet.decode(data), fds

    def passes(self, to: Client | None) -> None:
        """It has handed its turn over, by the words of its seat."""
        self.seat.set("passed_to", to.seat.slot + 1 if to is not None else 0)
        self.seat.set("passed_seq", self.seat.get("passed_seq") + 1)

    def silent(self) -> bool:
        """Whether nothing has been sent to it."""
        try:
            self.channel.recv(PACKET_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        return False


class OtherProcess:
    """Another process of a client's job (this one), with a channel of its own."""

    def __init__(self, rig: Rig, client: Client, name: str = "channel:1") -> None:
        self.rig, self.client, self.job = rig, client, client.job
        ours, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rig.channels.bring(client.job, name, ours.detach())

    def says(self, kind: PacketType, *numbers: int) -> list[Event]:
        """It sends a packet; what the core hears."""
        self.rig.events.clear()
        self.channel.send(Packet(kind, os.getpid(), *numbers).encode())
        self.rig.hears(self.job)
        return self.rig.events

    def asks(self, *, uses: bool = False) -> None:
        """For a seat: it is about to use the device, or only loads a library."""
        self.says(PacketType.HELLO, PROTOCOL, int(uses))

    def answer(self) -> PacketType | None:
        if not readable(self.channel.fileno()):
            return None
        data, fds, _, _ = socket.recv_fds(self.channel, PACKET_BYTES, 8)
        self.client.fds.extend(fds)
        return Packet.decode(data).type

    def close(self) -> None:
        self.rig.secondary.forget(self.job)
        self.channel.close()


class Shims(ShimLinks):
    """What the shims of jobs keep, by job and name, without any shim."""

    def __init__(self) -> None:
        super().__init__(GrantLedger(), lambda _job: None)
        self.kept: dict[int, dict[str, int]] = {}
        self.takes: list[tuple[int, str, str]] = []

    def keep(self, job: int, memory: Mapping[str, OwnedFd], attached_pid: int | None) -> None:
        for name, held in memory.items():
            self.drop(job, [name])
            self.kept[job][name] = os.dup(held.fd)

    def drop(self, job: int, names: list[str]) -> None:
        for name in names:
            fd = self.kept[job].pop(name, None)
            if fd is not None:
                os.close(fd)

    def take(self, job: int, bank: str, store: str) -> bool:
        """A shim that has been asked to move a job's memory; a test plays it."""
        self.takes.append((job, bank, store))
        return True


class Watched(Watchlist):
    """Who has been entered, and whose shims were busy."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[int] = []
        self.busy: list[int] = []

    def watch(self, job: JobRecord) -> None:
        self.jobs.append(job.id)
        super().watch(job)

    def mark_busy(self, job: JobRecord) -> None:
        self.busy.append(job.id)
        super().mark_busy(job)


class Rig:
    """One device, ``host0`` unless another one is given, with lane 1 of user 1000 and lane 2 of user 1001."""

    def __init__(self, device: Any = None, *, close_lanes: bool = False, limits: UserLimits | None = None) -> None:
        self.jobs = JobTable()
        self.device = device or HostDevice("host0", CAPACITY)
        self.events: list[Event] = []
        #: What the core would say of the device: nobody has been promised any of it.
        capacity = self.device.capacity
        self.view = DeviceView(
            self.device.id, capacity, capacity, 0, (1, 2), (), None, None, None, Oversubscribe.ON, (), 0
        )
        self.clients: dict[int, Client] = {}
        #: What clients have mapped of their memory: it is closed with the rig.
        self.mapped: list[Any] = []
        self.watchlist, self.recovery, shims = Watched(), Recovery(), Shims()
        self.watched, self.busy, self.shims = self.watchlist.jobs, self.watchlist.busy, shims.kept
        self.takes = shims.takes
        devices, store = (
            {self.device.id: self.device},
            SimpleNamespace(used=lambda job: None, why_not_suspended=lambda job: None),
        )
        parts = Parts(
            starting=ShimSpawner(Home(Path("/nonexistent")), devices, None, lambda _devices: {}, 1 << 30),
            privileges=DirectPrivileges(Home(Path("/nonexistent"))),
            devices=devices,
            settings=Settings(),
            limits=limits or UserLimits(),
            jobs=self.jobs,
            store=store,  # type: ignore[arg-type] - there is no journal
            shims=shims,
            in_flight=InFlightTable(),
            hooks=JobHooks(),
            watchlist=self.watchlist,
            recovery=self.recovery,
            machine_restarted=False,
            view=lambda _device: self.view,
            job_ended=lambda: None,
            post=self.events.append,
            close_lanes=close_lanes,
        )
        self.built = Built(parts)
        self.seating, self.lines, self.turns = self.built.seating, self.built.lines, self.built.turns
        self.memory, self.channels = self.built.memory, self.built.channels
        self.secondary = self.built.secondary
        for lane in (1, 2):
            self.do(commands.OpenLane(lane, self.device.id, 999 + lane, MIB))

    def do(self, command: commands.Command) -> None:
        self.built.execute(command)

    def job(self, owner: int = 1000, *, exclusive: bool = False, service: int | None = None) -> JobRecord:
        number = self.jobs.new_id()
        spec = SubmitRequest(argv=["true"], cwd="/", env={}, exclusive=exclusive, service=service)
        job = self.jobs.live[number] = JobRecord(number, owner, owner, spec, None, 0)
        job.device, job.lane = self.device.id, owner - 999
        self.shims[number] = {}
        return job

    def attach(
        self, owner: int = 1000, pid: int | None = None, *, exclusive: bool = False, service: int | None = None
    ) -> Client:
        """``pid``: of the attached process, if it is not this one."""
        pid = pid or os.getpid()
        job = self.job(owner, exclusive=exclusive, service=service)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channels.open(job, [ours.detach()], Register(job.id, pid))
        theirs.send(Packet(PacketType.HELLO, pid, PROTOCOL).encode())
        self.hears(job)
        data, fds, _, _ = socket.recv_fds(theirs, PACKET_BYTES, 8)
        assert job.seated is not None
        client = Client(job, theirs, job.seated.seat, Packet.decode(data), fds, self.shims[job.id])
        self.clients[job.id] = client
        self.events.clear()
        return client

    def seated_earlier(self, client: Client) -> None:
        """As if a daemon before this one had seated the process, and ended before it answered."""
        self.channels.attaching._answered.discard(client.job.id)

    def hears(self, job: JobRecord) -> None:
        """The daemon reads one packet of each channel that has some."""
        for line in self.lines.all(job.id):
            if readable(line.socket.fileno()):
                self.channels._readable(line)

    def says(self, client: Client, kind: PacketType, *numbers: int) -> list[Event]:
        """The job sends a packet; what the core hears."""
        self.events.clear()
        client.channel.send(Packet(kind, os.getpid(), *numbers).encode())
        self.hears(client.job)
        return self.events

    def offload(self, client: Client, stored: int = MIB) -> list[Event]:
        """Ask for it, and play the job that does it."""
        self.do(commands.Offload(client.job.id))
        client.seat.set("stored", stored)
        client.seat.set("offloaded", 1)
        return self.says(client, PacketType.OFFLOADED, 0, stored)

    def comes_back(self, client: Client) -> None:
        """Everything is on the device again, in a turn that is over."""
        self.do(commands.GrantMemory(client.job.id, Memory(MIB, 0)))
        client.seat.set("stored", 0)
        client.seat.set("offloaded", 0)

    def close(self) -> None:
        for mapped in self.mapped:
            mapped.close()
        self.channels.close_all()
        for client in self.clients.values():
            client.channel.close()
            for fd in client.fds:
                os.close(fd)
        for kept in self.shims.values():
            for fd in kept.values():
                os.close(fd)
        self.device.close()
