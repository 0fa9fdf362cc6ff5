"""The model that a request names, in JSON or in a form, and the request under the name that its engine knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from carpool.serve.oip.errors import WrongInput

_FORM = "multipart/form-data"
_BOUNDARY = re.compile(r'boundary="?([^";\s]{1,200})', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition:(.*)$", re.IGNORECASE | re.MULTILINE)
_PARAMETER = re.compile(rb';[ \t]*([^\s=;"]{1,100})=("(?:[^"\\]|\\.)*"|[^\s;"]*)')


@dataclass(frozen=True, slots=True)
class Asked:
    """The ``model`` that a body names; ``renamed`` returns the body with another, all other values with their bytes."""

    model: str
    renamed: Callable[[str], bytes]

    @classmethod
    def of(cls, body: bytes, media: str) -> Asked:
        """Read a body.  ``media``: the header `Content-Type`.  Raises WrongInput."""
        return _of_form(body, media) if media.lower().startswith(_FORM) else _of_json(body)


def _of_form(body: bytes, media: str) -> Asked:
    begin, end = _place(body, media)
    return Asked(body[begin:end].decode(errors="replace"), lambda model: body[:begin] + model.encode() + body[end:])


def _of_json(body: bytes) -> Asked:
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        model = msgspec.json.decode(fields["model"], type=str)
    except (msgspec.ValidationError, KeyError):
        raise WrongInput("the request names no `model`: GET /v1/models lists the models") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongInput(f"the body is not JSON: {error}") from None
    return Asked(model, lambda other: msgspec.json.encode({**fields, "model": other}))


def _place(body: bytes, media: str) -> tuple[int, int]:
    """Return where the value of the form's field `model` begins and ends.  Raises WrongInput."""
    boundary = _BOUNDARY.search(media)
    if boundary is None:
        raise WrongInput("the header Content-Type of the form has no boundary")
    line = b"\r\n--" + boundary[1].encode(errors="surrogateescape")
    begin = -2 if body.startswith(line[2:]) else body.find(line)
    while begin != -1:
        begin += len(line)
        end = body.find(line, begin)
        blank = body.find(b"\r\n\r\n", begin, end)
        if end != -1 and blank != -1 and _names_model(body[begin:blank]):
            return blank + 4, end
        begin = end
    raise WrongInput("the form has no field `model`: GET /v1/models lists the models")


def _names_model(head: bytes) -> bool:
    """Whether these are the headers of the field `model`."""
    found = _DISPOSITION.search(head)
    named = [] if found is None else [value for name, value in _PARAMETER.findall(found[1]) if name.lower() == b"name"]
    return [value.strip(b'"') for value in named[:1]] == [b"model"]
