"""What other programs, other versions and users hold on to, as lines of text that can be compared.

Types are found through public objects, so that modules may move: then the imports here change, and nothing else.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from carpool.core import commands, events
from carpool.core.model import JobSpec, Settings
from carpool.daemon.api.routes import ROUTES
from carpool.daemon.journal import schema
from carpool.devices.cuda import messages as agent
from carpool.protocol import api, seat, session
from carpool.serve.wire import messages as serving

FILE = Path(__file__).with_name("frozen.json")
#: Words of a JSON schema that say nothing about what may be sent.
SILENT = ("title", "description")
#: What users' policies import, and the classes whose members they use.
POLICY_NAMES = {
    "carpool.core.policies": ("BasePolicy", "Key", "Policy", "available_policies", "register_policy"),
    "carpool.core.placement": ("BasePlacement", "Key", "PlacementPolicy", "available_placements"),
    "carpool.core.model": ("MIB", "GIB", "Settings", "Memory", "Usage", "Load", "JobPhase", "Outcome"),
    "carpool.policies": ("View", "JobView", "LaneView", "DeviceView"),
    "carpool.policy_check": ("check_policy", "ContractViolation"),
}


def surface() -> dict[str, Any]:
    tables = schema.TABLES
    return {
        "events": of_types("", get_args(events.Event)),
        "commands": of_types("", get_args(commands.Command)),
        "settings": of_types("", [Settings]),
        "job": of_types("", [JobSpec]),
        "shim messages": of_types("from shim: ", get_args(session.FromShim))
        + of_types("to shim: ", get_args(session.ToShim))
        + of_types("in a file: ", [session.StartSpec]),
        "serving messages": of_types("", [as_struct(kind, tag=kind.__name__) for kind in get_args(serving.Message)]),
        "agent messages": of_types("request: ", get_args(agent.Request)) + of_types("answer: ", get_args(agent.Answer)),
        "routes": [line for route in ROUTES for line in of_route(route)],
        "errors and events of the API": of_types("", [api.ErrorBody, api.EventInfo]),
        "seat": list(of_seat()),
        "policies": list(of_policies()),
        "columns": list(of_tables(tables)),
        "tables": tables,
        "version of the journal": str(schema.SCHEMA),
    }


def stored() -> dict[str, Any]:
    """As it was when it was frozen."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def of_types(prefix: str, types: Iterable[Any]) -> list[str]:
    """Messages go by the name that is sent with them."""
    tags = [(getattr(getattr(kind, "__struct_config__", None), "tag", None) or kind.__name__, kind) for kind in types]
    return [line for tag, kind in tags for line in of_type(f"{prefix}{tag}", kind)]


def of_type(name: str, kind: type) -> list[str]:
    """One line per field, in their order (arguments may be positional), with its type and default as JSON has them."""
    (made,), components = msgspec.json.schema_components([kind], schema_hook=_any, ref_template="{name}")
    return list(_lines(name, made, components))


@cache
def as_struct(kind: Any, tag: str | None = None) -> Any:
    """A record of the models' workers as a struct of msgspec, which is what version 0.1 sent."""
    types = get_type_hints(kind, include_extras=True)
    members = [(part.name, _as_msgspec(types[part.name]), *_default(part)) for part in dataclasses.fields(kind)]
    return msgspec.defstruct(kind.__name__, members, tag=tag)


def _default(part: Any) -> list[Any]:
    return [] if part.default is dataclasses.MISSING else [part.default]


def _as_msgspec(kind: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return as_struct(kind)
    if get_origin(kind) is Annotated:
        whole, bounds = get_args(kind)
        return Annotated[whole, msgspec.Meta(ge=bounds.least, le=bounds.most)]
    if get_origin(kind) is tuple:
        return tuple[_as_msgspec(get_args(kind)[0]), ...]  # type: ignore[misc]
    return Union[tuple(_as_msgspec(choice) for choice in get_args(kind))] if isinstance(kind, UnionType) else kind  # noqa: UP007


def _any(kind: type) -> dict[str, Any]:
    if kind is not object:
        raise NotImplementedError(kind)
    return {"type": "any"}


def _lines(name: str, part: dict[str, Any], components: dict[str, Any]) -> Iterator[str]:
    """The names of nested types do not matter, only what they consist of."""
    own = {word: value for word, value in part.items() if word not in SILENT}
    if "$ref" in own:
        yield from _lines(name, components[own.pop("$ref")] | own, components)
        return
    own.pop("discriminator", None)
    choices, items, prefixed = own.pop("anyOf", []), own.pop("items", None), own.pop("prefixItems", [])
    members, required = own.pop("properties", {}), own.pop("required", [])
    yield f"{name}: {json.dumps(own, sort_keys=True)}"
    for choice in choices:
        yield from _lines(f"{name}|", choice, components)
    if isinstance(items, dict):
        yield from _lines(f"{name}[]", items, components)
    for number, item in enumerate(prefixed):
        yield from _lines(f"{name}[{number}]", item, components)
    for member, value in members.items():
        yield from _lines(f"{name}.{member}{'' if member in required else '?'}", value, components)


def of_route(route: Any) -> list[str]:
    name = f"{route.method} {route.path}"
    lines = [f"{name} {route.status} {route.media} {','.join(route.query)}"]
    for role, kind in (("body", route.body), ("answer", route.answer)):
        lines += of_type(f"{name} {role}", kind) if kind is not None else []
    return lines


def of_seat() -> Iterator[str]:
    for name, (offset, code) in seat.FIELDS.items():
        yield f"{name} at {offset}: {code}"
    constants = ("BOARD_MAGIC", "PROTOCOL", "SEATS", "HEADER_BYTES", "SEAT_BYTES", "KIND_OFFSET", "PACKET_BYTES")
    for name in (*constants, "CHUNK", "IN_DEVICE", "IN_STORE"):
        yield f"{name} = {getattr(seat, name)}"
    kinds = (*(seat.PacketType, seat.Kind, seat.Trait, seat.Yield, seat.Grow, seat.Leave, seat.Whole),)
    for kind in (*kinds, seat.Placed, seat.OutOf, seat.OffloadState):
        yield from of_numbers(kind)


def of_numbers(kind: type[IntEnum] | type[IntFlag]) -> list[str]:
    return [f"{kind.__name__}.{member.name} = {member.value}" for member in kind]


def of_tables(tables: str) -> Iterator[str]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(tables)
    found = connection.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY name").fetchall()
    for kind, name, table in found:
        yield f"{kind} {name} of {table}"
        for column in connection.execute(f"PRAGMA {kind}_info({name})"):
            yield f"{name}: {' '.join(map(str, column))}"
    connection.close()


def of_policies() -> Iterator[str]:
    for module, names in POLICY_NAMES.items():
        found = importlib.import_module(module)
        for name in names:
            yield f"{module}.{name}"
            yield from (f"{module}.{name}.{member}" for member in members(getattr(found, name)))


def members(kind: object) -> list[str]:
    """Of a class; fields of records in their order."""
    if not isinstance(kind, type):
        return []
    fields = getattr(kind, "_fields", None) or getattr(kind, "__struct_fields__", None)
    return list(fields or (name for name in vars(kind) if not name.startswith("_")))
