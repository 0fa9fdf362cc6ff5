"""The model that a request names, in JSON or in a form, and the request under the name that its engine knows."""

from __future__ import annotations

import re

import msgspec

from carpool.serve.oip.errors import WrongInput

_FORM = "multipart/form-data"
_BOUNDARY = re.compile(r'boundary="?([^";]{1,200})"?')


class _Asked(msgspec.Struct):
    model: str


def asked_model(body: bytes, media: str) -> str:
    """Return the name of the model.  ``media``: the header `Content-Type`.  Raises WrongInput."""
    if media.lower().startswith(_FORM):
        found = _field(body, media)
        if found is None:
            raise WrongInput("the form has no field `model`: GET /v1/models lists the models")
        return found.decode(errors="replace")
    try:
        return msgspec.json.decode(body, type=_Asked).model
    except msgspec.ValidationError:
        raise WrongInput("the request names no `model`: GET /v1/models lists the models") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise WrongInput(f"the body is not JSON: {error}") from None


def renamed(body: bytes, media: str, model: str) -> bytes:
    """Return the body with another model; all other values keep their bytes."""
    if media.lower().startswith(_FORM):
        return _form_pattern(media).sub(lambda found: found[1] + model.encode() + found[3], body, count=1)
    values = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**values, "model": model})


def _field(body: bytes, media: str) -> bytes | None:
    found = _form_pattern(media).search(body)
    return None if found is None else found[2]


def _form_pattern(media: str) -> re.Pattern[bytes]:
    """Return the pattern of the field `model`: what is before its value, the value, and the line end after it."""
    boundary = _BOUNDARY.search(media)
    if boundary is None:
        raise WrongInput("the header Content-Type of the form has no boundary")
    line = re.escape(b"--" + boundary[1].encode())
    heads = rb'(?:[^\r\n]+\r\n)*?(?i:content-disposition):[^\r\n]*;\s*name="?model"?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n'
    return re.compile(rb"(" + line + rb"\r\n" + heads + rb")([^\r\n]{1,200})(\r\n" + line + rb")")
