"""The options that `carpool serve` passes to the process that serves."""

from __future__ import annotations

import msgspec

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
    as_json: bool = False  # print JSON lines
