"""Models that owners register, and controls of devices; a change is on the disk before it is in force."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from carpool.core.events import DeviceChanged, DeviceDrained, Event
from carpool.core.model import DeviceId, DeviceSpec, Micros, Oversubscribe
from carpool.daemon.config.options import DeviceOption
from carpool.daemon.journal.rows import PUT_META, MetaRow, ModelRow, sound_rows
from carpool.daemon.journal.writer import Journal
from carpool.protocol.display import user_name
from carpool.protocol.models import NOT_SERVED, ModelInfo, ModelRequest, check_name

log = logging.getLogger(__name__)
_WRITE = "INSERT OR REPLACE INTO models (owner, name, spec, env, added_us) VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM models WHERE owner = ? AND name = ?"


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A registered model, which a service may be asked for by its name."""

    owner: int
    name: str
    spec: ModelRequest
    added_us: Micros  # wall clock

    def info(self, state: str = NOT_SERVED, reason: str = "") -> ModelInfo:
        """Describe the model.  ``state`` and ``reason``: as fronts have reported them."""
        spec = self.spec
        return ModelInfo(
            name=self.name,
            owner=self.owner,
            factory=spec.factory,
            weights=spec.weights,
            deadline_us=spec.deadline_us,
            max_batch=spec.max_batch,
            max_delay_us=spec.max_delay_us,
            priority=spec.priority,
            python=spec.python,
            cwd=spec.cwd,
            variables=len(spec.env),
            added_us=self.added_us,
            state=state,
            reason=reason,
        )


class Models:
    """The models of all owners; two owners may have models of one name."""

    def __init__(self, journal: Journal, known: Iterable[RegisteredModel] = ()) -> None:
        self._journal = journal
        self._models = {(model.owner, model.name): model for model in known}
        self._changing = asyncio.Lock()  # what a change is based on must still hold when the change is on the disk

    def find(self, owner: int, name: str) -> RegisteredModel | None:
        return self._models.get((owner, name))

    def listed(self) -> list[RegisteredModel]:
        """Return all models by name, then by owner."""
        return sorted(self._models.values(), key=lambda model: (model.name, model.owner))

    async def add(
        self, model: RegisteredModel, *, replace: bool, check: Callable[[RegisteredModel], None] = lambda model: None
    ) -> bool:
        """Add a model; False: its owner has one of that name, and ``replace`` is not set.  Raises JournalFull.

        ``check`` raises if there is no room; meanwhile no other model is added.
        """
        key = (model.owner, model.name)
        async with self._changing:
            if key in self._models and not replace:
                return False
            check(model)
            await self._journal.durable(_WRITE, _row(model), erases=key in self._models)
            self._models[key] = model
            return True

    async def remove(self, owner: int, name: str) -> RegisteredModel | None:
        """Remove a model and return it; None: there was none.  Raises JournalFull."""
        async with self._changing:
            if (owner, name) not in self._models:
                return None
            await self._journal.durable(_DELETE, (owner, name), erases=True)
            return self._models.pop((owner, name))


def read_models(connection: sqlite3.Connection) -> list[RegisteredModel]:
    """Read all models of the journal."""
    decode_spec = msgspec.json.Decoder(ModelRequest).decode
    decode_env = msgspec.json.Decoder(dict[str, str]).decode

    def model_of(row: ModelRow) -> RegisteredModel:
        spec = msgspec.structs.replace(decode_spec(row.spec), env=decode_env(row.env))
        return RegisteredModel(row.owner, check_name(row.name), spec, row.added_us)

    return list(sound_rows(connection, "models", ModelRow, model_of))


def _row(model: RegisteredModel) -> tuple[object, ...]:
    spec = msgspec.json.encode(msgspec.structs.replace(model.spec, env={})).decode()
    env = msgspec.json.encode(model.spec.env).decode()
    return (model.owner, model.name, spec, env, model.added_us)


KEY = "device:"  # before the device's id, in the journal's table `meta`


class Control(msgspec.Struct, frozen=True):
    """``quantum_us`` None: as the settings say.  ``drained_by``: uid of the user who drained it; None: not drained.

    ``reserve``: bytes that are kept for other programs; None: not set.
    """

    quantum_us: Micros | None = None
    oversubscribe: Oversubscribe = Oversubscribe.AUTO
    drained_by: int | None = None
    drain_reason: str = ""
    reserve: int | None = None

    @property
    def drained(self) -> str:
        """Why the device is drained, for people; empty: it is not drained."""
        if self.drained_by is None:
            return ""
        return f"drained by {user_name(self.drained_by)}" + (f": {self.drain_reason}" if self.drain_reason else "")


class Controls:
    """The controls of all devices; changes are on the disk before they are in force."""

    def __init__(self, stored: dict[DeviceId, Control], journal: Journal, post: Callable[[Event], None]) -> None:
        self._controls = stored
        self._journal = journal
        self._post = post
        self._changing = asyncio.Lock()  # a change of one value must not bring back an old value of another

    def of(self, device: DeviceId) -> Control:
        return self._controls.get(device, Control())

    def spec(self, device: DeviceOption) -> DeviceSpec:
        """Return the device as the core is told of it."""
        control = self.of(device.id)
        return DeviceSpec(
            device.id,
            device.capacity,
            quantum_us=control.quantum_us,
            oversubscribe=control.oversubscribe,
            sharing=device.sharing,
            drained=control.drained,
            reserve=control.reserve or 0,
        )

    async def change(self, device: DeviceId, change: Callable[[Control], Control]) -> None:
        """Change a device's controls, first on the disk.  Raises JournalFull; then nothing has changed."""
        async with self._changing:
            before = self.of(device)
            control = change(before)
            text = msgspec.json.encode(control).decode()
            await self._journal.durable(PUT_META, (KEY + device, text))
            self._controls[device] = control
            self._post(DeviceChanged(device, control.quantum_us, control.oversubscribe, control.reserve or 0))
            if control.drained != before.drained:
                self._post(DeviceDrained(device, control.drained))


def read_controls(connection: sqlite3.Connection, devices: Iterable[DeviceId]) -> dict[DeviceId, Control]:
    """Read the controls of these devices; those of other devices stay in the journal, as a device may come back."""
    known, found = set(devices), {}
    for device, control in sound_rows(connection, "meta", MetaRow, _control, f"WHERE key LIKE '{KEY}%'"):
        if device in known:
            found[device] = control
        else:
            log.info("the journal has settings of a device %s, which there is not at present", device)
    return found


def _control(row: MetaRow) -> tuple[DeviceId, Control]:
    return row.key.removeprefix(KEY), msgspec.json.decode(row.value, type=Control)
