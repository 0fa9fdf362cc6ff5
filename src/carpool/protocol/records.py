"""Frozen dataclasses as JSON and back, with the standard library alone.

For messages to processes in users' interpreters, which need not have the packages that Carpool depends on.  A field is
a bool, an int (`Range` bounds it), a str, bytes (as base64), one of some `Literal` strings, a dataclass, a tuple of any
number of those, or one of those or None.  Received JSON must have exactly the fields and types of its dataclass.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
#: Key of the dataclass's name where one of several dataclasses may come.
TAG = "type"

Read = Callable[[Any], Any]
Write = Callable[[Any], Any]
_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False).encode


class Malformed(ValueError):
    """Error: a record is not of its type.  ``place``: where in the record."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text, place)
        self.text, self.place = text, place

    def __str__(self) -> str:
        return f"{self.text} (at ${self.place})" if self.place else self.text

    def within(self, place: str) -> Malformed:
        """Return the same error with a place relative to the object that contains it."""
        return Malformed(self.text, place + self.place)


class Range(NamedTuple):
    """The bounds of an int, both included: ``Annotated[int, Range(0, 9)]``."""

    least: int
    most: int


def encode(value: object) -> bytes:
    """Encode a dataclass as JSON.  Raises UnicodeEncodeError for text that is not Unicode."""
    kind: Any = type(value)
    return _text(_object_writer(kind)(value)).encode()


def encode_tagged(value: object) -> bytes:
    """Encode a dataclass with its name, for `Kinds`."""
    kind: Any = type(value)
    return _text({TAG: kind.__name__, **_object_writer(kind)(value)}).encode()


def decode(data: bytes | bytearray, kind: type[T]) -> T:
    """Decode what `encode` has made of a ``kind``.  Raises Malformed."""
    wanted: Any = kind
    found: T = _reader(wanted)(_parsed(data))
    return found


class Kinds:
    """Any of some dataclasses, by their names: what may come over one connection."""

    def __init__(self, kinds: Any) -> None:
        """Accept ``kinds``: a dataclass, or a union of several."""
        self._readers = {kind.__name__: _reader(kind) for kind in (get_args(kinds) or (kinds,))}

    def decode(self, data: bytes | bytearray) -> Any:
        """Decode what `encode_tagged` has made.  Raises Malformed."""
        value = _parsed(data)
        if type(value) is not dict:
            raise Malformed(f"expected an object, got {_kind_of(value)}")
        tag = value.pop(TAG, None)
        read = self._readers.get(tag) if type(tag) is str else None
        if read is None:
            raise Malformed(f"expected one of {', '.join(self._readers)}, got {tag!r}", f".{TAG}")
        return read(value)


def _parsed(data: bytes | bytearray) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from None


def _kind_of(value: Any) -> str:
    return type(value).__name__


# From the fields of a dataclass to JSON; None: a value that needs no conversion


@cache
def _object_writer(kind: type[Any]) -> Write:
    writers = [(name, _writer(hint)) for name, hint in _hints(kind).items()]

    def write(value: Any) -> dict[str, Any]:
        return {
            name: getattr(value, name) if convert is None else convert(getattr(value, name))
            for name, convert in writers
        }

    return write


def _writer(hint: Any) -> Write | None:
    item = _item(hint)
    if item is not None:
        return _writer_of_many(_writer(item))
    inner = _present(hint)
    if inner is not None:
        return _writer_unless_none(_writer(inner))
    if is_dataclass(hint):
        return _object_writer(hint)  # type: ignore[arg-type]  # no instance: hints are types
    return _base64 if hint is bytes else None


def _writer_of_many(convert: Write | None) -> Write | None:
    return None if convert is None else lambda values: [convert(value) for value in values]


def _writer_unless_none(convert: Write | None) -> Write | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# From JSON to a dataclass


@cache
def _reader(hint: Any) -> Read:
    item = _item(hint)
    if item is not None:
        return _many(_reader(item))
    inner = _present(hint)
    if inner is not None:
        return _unless_none(_reader(inner))
    if is_dataclass(hint):
        return _object(hint)
    if get_origin(hint) is Annotated:
        return _bounded(*get_args(hint)[1:])
    if get_origin(hint) is Literal:
        return _one_of(get_args(hint))
    return _PLAIN[hint]


def _object(kind: Any) -> Read:
    readers = [(name, _reader(hint)) for name, hint in _hints(kind).items()]
    names = {name for name, _ in readers}

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise Malformed(f"expected {kind.__name__}, got {_kind_of(value)}")
        if value.keys() != names:
            raise Malformed(f"{kind.__name__} has the fields {', '.join(sorted(names))}; {_difference(value, names)}")
        name, given = "", []
        try:
            for name, read_field in readers:
                given.append(read_field(value[name]))
        except Malformed as error:
            raise error.within(f".{name}") from None
        try:
            return kind(*given)
        except ValueError as error:  # raised by the dataclass's own check
            raise Malformed(str(error)) from None

    return read


def _difference(value: dict[str, Any], names: set[str]) -> str:
    missing, unknown = sorted(names - value.keys()), sorted(value.keys() - names)
    return f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"


def _many(read_item: Read) -> Read:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Malformed(f"expected a list, got {_kind_of(value)}")
        made: list[Any] = []
        try:
            for item in value:
                made.append(read_item(item))  # noqa: PERF401 - its length is the place of the malformed item
        except Malformed as error:
            raise error.within(f"[{len(made)}]") from None
        return tuple(made)

    return read


def _unless_none(read_present: Read) -> Read:
    return lambda value: None if value is None else read_present(value)


def _bounded(bounds: Range) -> Read:
    least, most = bounds

    def read(value: Any) -> int:
        if type(value) is not int:
            raise Malformed(f"expected int, got {_kind_of(value)}")
        if not least <= value <= most:
            raise Malformed(f"expected a number from {least} to {most}, got {value}")
        return value

    return read


def _one_of(texts: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        if value not in texts:
            raise Malformed(f"expected one of {', '.join(texts)}, got {value!r}")
        return value

    return read


def _exactly(kind: type[Any]) -> Read:
    """Return a reader that accepts ``kind`` but no subclass: True is not an int."""

    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise Malformed(f"expected {kind.__name__}, got {_kind_of(value)}")
        return value

    return read


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise Malformed(f"expected str, got {_kind_of(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can express
            raise Malformed(f"expected Unicode: {error}") from None
    return value


def _read_bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_read_text(value), validate=True)
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(f"expected base64: {error}") from None


_PLAIN: dict[Any, Read] = {int: _exactly(int), bool: _exactly(bool), str: _read_text, bytes: _read_bytes}


# Type hints


def _hints(kind: Any) -> dict[str, Any]:
    """Return the type hints of a dataclass's fields, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _item(hint: Any) -> Any:
    """Return the item's type of ``tuple[item, ...]``; None for another hint."""
    return get_args(hint)[0] if get_origin(hint) is tuple else None


def _present(hint: Any) -> Any:
    """Return the type of ``present | None`` without None; None for another hint."""
    if get_origin(hint) not in (Union, UnionType):
        return None
    (present,) = (part for part in get_args(hint) if part is not NoneType)
    return present
