"""States of models as fronts report them: kept in memory only, while the front's connection is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from carpool.daemon.journal.model_registry import RegisteredModel
from carpool.protocol.models import NOT_SERVED, PREPARING, READY, UNAVAILABLE, ModelInfo, ModelState

#: Returns the bytes by device of weights, given the owner's uid and the weights' key.
Whereabouts = Callable[[int, str], dict[str, int]]
#: Where several fronts of one user serve a model, the state that tells most of whether requests are answered.
_RANK = {READY: 0, PREPARING: 1, UNAVAILABLE: 2}


class FrontConnection(Protocol):
    """The connection of a front, which the kernel closes when the front ends, however it ends."""

    def is_closing(self) -> bool:
        """Whether the connection is closed, at either end."""


class ModelStates:
    """The last report of each front that is connected.  A report counts for models of the front's own user only.

    ``where`` says where weights are now.
    """

    def __init__(self, where: Whereabouts = lambda owner, key: {}) -> None:
        self._where = where
        self._reports: dict[FrontConnection, tuple[int, Mapping[str, ModelState]]] = {}

    def report(self, connection: FrontConnection, uid: int, models: Mapping[str, ModelState]) -> None:
        """Replace the last report on this connection.  ``uid``: of the process at the other end."""
        self._forget_closed()
        self._reports[connection] = (uid, models)

    def info(self, model: RegisteredModel) -> ModelInfo:
        """Return the model with its state; ``not served`` if no front has reported a state."""
        known = min(self._of(model), key=lambda each: _RANK[each.state], default=None)
        if known is None:
            return model.info(NOT_SERVED)
        key, figures = known.weights_key, known.figures
        return msgspec.structs.replace(
            model.info(known.state, known.reason),
            figures=None if isinstance(figures, msgspec.UnsetType) else figures,
            on_devices={} if isinstance(key, msgspec.UnsetType) else self._where(model.owner, key),
        )

    def _of(self, model: RegisteredModel) -> Iterator[ModelState]:
        self._forget_closed()
        for uid, models in self._reports.values():
            if uid == model.owner and model.name in models:
                yield models[model.name]

    def _forget_closed(self) -> None:
        self._reports = {each: report for each, report in self._reports.items() if not each.is_closing()}
