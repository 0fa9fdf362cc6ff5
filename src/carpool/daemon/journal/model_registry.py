"""Registered models: each belongs to its owner, and is on the disk before it is acknowledged."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from carpool.core.model import Micros
from carpool.daemon.journal.quarantine import sound_rows
from carpool.daemon.journal.row_types import ModelRow
from carpool.daemon.journal.writer import Journal
from carpool.protocol.models import NOT_SERVED, ModelInfo, ModelRequest, check_name

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
