"""Answers of the daemon, and events, in which every value is missing that may be missing: null, empty, 0."""

from __future__ import annotations

import dataclasses
import itertools
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from carpool.core.model import Outcome
from carpool.protocol import api

PHASES = ("queued", "starting", "running", "stopping", "ended")
PLAIN: Mapping[Any, object] = {str: "", int: 0, float: 0.0, bool: False, bytes: b"", object: None, Any: None}


def bare(kind: Any, **fields: object) -> Any:
    """A value of the type; lists of objects have one.  ``fields`` of the outermost object are as they are given."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return bare(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in typing.get_args(kind) else bare(typing.get_args(kind)[0])
    if origin in (list, tuple):
        item = typing.get_args(kind)[0]
        return [bare(item)] if isinstance(item, type) and issubclass(item, msgspec.Struct) else []
    if origin is dict:
        return {}
    if hasattr(kind, "__supertype__"):
        return bare(kind.__supertype__)
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
        hints = typing.get_type_hints(kind, include_extras=True)
        return kind(**{name: bare(hint) for name, hint in hints.items() if name not in fields} | fields)
    return next(iter(kind)) if isinstance(kind, type) and issubclass(kind, Enum) else PLAIN[kind]


def bare_jobs() -> list[api.JobInfo]:
    """One in each phase, and one of each end, of which no more is known; and the same with past attempts."""
    ends = [(phase, None) for phase in PHASES if phase != "ended"] + [("ended", str(each)) for each in Outcome]
    pasts: list[list[api.AttemptInfo]] = [[], [bare(api.AttemptInfo)]]
    return [
        bare(api.JobInfo, id=number, owner=1000, phase=phase, outcome=outcome, attempts=attempts)
        for number, ((phase, outcome), attempts) in enumerate(itertools.product(ends, pasts), 1)
    ]
