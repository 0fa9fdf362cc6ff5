"""Messages about registered models, and the form of a model's name, factory and file of weights.

A registered model is what a worker of it needs: where its code and its weights are, in which environment, and its
limits.  No process loads any of it before a worker does.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

LONGEST_NAME = 100
SUFFIXES = (".safetensors", ".safetensors.index.json")
DEFAULT_BATCH = 8
DEFAULT_PRIORITY = 100
#: Values of `ModelInfo.state`: no front serves the model; a front prepares it, answers requests for it, or cannot.
NOT_SERVED: Final = "not served"
PREPARING: Final = "preparing"
READY: Final = "ready"
UNAVAILABLE: Final = "unavailable"
LONGEST_REASON = 2000  # characters
LARGEST_FIGURE = 2**53
Figure = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_FIGURE)]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class ModelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """PUT /v1/models/{name}."""

    factory: str  # module:function
    python: str  # the interpreter of its workers, absolute
    cwd: str  # where they run, and import the factory from
    env: dict[str, str]
    weights: str | None = None  # absolute; null: as the factory leaves them
    deadline_us: int | None = None  # from the arrival of a request that names none; null: no matter when
    max_batch: int = DEFAULT_BATCH  # rows
    max_delay_us: int = 0  # how long a request may wait for others of its batch
    priority: int = DEFAULT_PRIORITY  # larger is more


class ModelFigures(msgspec.Struct, frozen=True):
    """A front's figures for a model: the last minute, and what waits now.  Times: from a request's head to its
    result; null: there was none."""

    requests_per_s: Annotated[float, msgspec.Meta(ge=0, le=LARGEST_FIGURE)] = 0.0  # that got a result
    p50_us: Figure | None = None
    p99_us: Figure | None = None
    missed: Figure = 0  # requests whose deadline was missed
    waiting: Figure = 0
    copied_bytes: Figure = 0  # of weights, to devices


class ModelInfo(msgspec.Struct, frozen=True):
    """One row of GET /v1/models and the answer of GET /v1/models/{name}.  The environment has an address of its own."""

    name: str
    owner: int
    factory: str
    weights: str | None
    deadline_us: int | None
    max_batch: int
    max_delay_us: int
    priority: int
    python: str
    cwd: str
    variables: int  # how many the environment has
    added_us: int
    state: str = NOT_SERVED  # "not served" | "preparing" | "ready" | "unavailable"; no part of the registration
    reason: str = ""  # why it is unavailable
    figures: ModelFigures | None = None  # null: no front has reported any
    on_devices: dict[str, int] = {}  # where its weights are now: bytes by device

    def registration(self) -> ModelInfo:
        """Return the registration alone, without the model's state in fronts."""
        return msgspec.structs.replace(self, state=NOT_SERVED, reason="", figures=None, on_devices={})


class ModelState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a model in a front.  ``reason``: why the model is unavailable, for people."""

    state: Literal["preparing", "ready", "unavailable"]
    reason: Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)] = ""
    figures: ModelFigures | msgspec.UnsetType = msgspec.UNSET
    weights_key: Annotated[str, msgspec.Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET  # the daemon's word


class ServingReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/serving: the models of the caller's that a front serves, by name; each report replaces the one before."""

    models: dict[str, ModelState]


class ModelList(msgspec.Struct, frozen=True):
    """GET /v1/models: the caller's models; for administrators, those of all users."""

    models: list[ModelInfo]


class ModelEnvironment(msgspec.Struct, frozen=True):
    """GET /v1/models/{name}/environment: what a worker needs, secrets included."""

    env: dict[str, str]


def check_name(text: str) -> str:
    """Return ``text`` if it can be a model's name, which is a part of URLs.  Raises ValueError with a text for users.

    >>> check_name("bert-base.v2")
    'bert-base.v2'
    """
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a name for a model or an engine: letters, digits and . _ - after a letter or digit"
        )
    if len(text) > LONGEST_NAME:
        raise ValueError(f"the name has {len(text)} characters; it may have {LONGEST_NAME}")
    return text


def unavailable(reason: str) -> ModelState:
    """Return the state of a model that cannot be asked.  ``reason``: any text; a long one is cut at its end.

    >>> unavailable("there is no file w.safetensors").reason
    'there is no file w.safetensors'
    """
    sendable = reason.encode(errors="backslashreplace").decode()  # file names may not be UTF-8
    shortened = sendable if len(sendable) <= LONGEST_REASON else f"{sendable[: LONGEST_REASON - 3]}..."
    return ModelState(UNAVAILABLE, shortened)


def check_factory(text: str) -> str:
    """Return ``text`` if it is ``module:function``, perhaps in packages.  Raises ValueError with a text for users.

    >>> check_factory("shop.models:resnet")
    'shop.models:resnet'
    """
    module, _, function = text.partition(":")
    if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError(f"{text!r} is not a factory: write module:function, as in shop.models:resnet")
    return text


def check_weights(text: str) -> str:
    """Return ``text`` if it can name a file of weights.  Raises ValueError with a text for users."""
    if not text.endswith(SUFFIXES):
        raise ValueError(f"{text!r} is not a file of weights: its name must end in {' or '.join(SUFFIXES)}")
    return text


DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000
DEFAULT_STANDBY = 2
DEFAULT_QUEUE = 128
DEFAULT_CONNECTIONS = 512
#: The order in which requests are computed: by arrival, by deadline, by priority.
ORDERS = ("fcfs", "edf", "priority")


class FrontOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The only argument of ``python -m carpool.serve.__main__``, as JSON.  Nothing in it is secret."""

    home: str  # the daemon's directory
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    token_file: str | None = None
    order: str = ORDERS[0]
    store_bytes: int | None = None  # of the model store; null: half of the memory
    standby: int = DEFAULT_STANDBY  # workers of each environment beside the one that computes
    queue: int = DEFAULT_QUEUE  # requests that may wait for a model
    connections: int = DEFAULT_CONNECTIONS  # at once
    models: list[str] = []  # none: all of the caller's
    engines_file: str | None = None  # of engines to start on demand; it may be missing; null: there are none
    as_json: bool = False  # print JSON lines
