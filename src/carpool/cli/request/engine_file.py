"""The file of engines as `carpool engine add` and `rm` write it; what people have written in it stays as it is."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from carpool.cli.base.cli_error import Exit, Problem
from carpool.core.spelling import did_you_mean
from carpool.protocol.engines import EngineSpec, read_engines

Keys = Mapping[str, object]


def add_engine(path: Path, name: str, keys: Keys, *, replace: bool) -> EngineSpec:
    """Add a table to the file, and return it as an engine.  Raises Problem."""
    text = _text(path)
    if name in _engines(path):
        if not replace:
            raise Problem(Exit.USAGE, "engine_exists", f"{path} has an engine {name}", "replace it: --replace")
        text = _without(path, text, name)
    lines = [f"[{_key(name)}]", *(f"{key} = {_value(value)}" for key, value in keys.items())]
    _write(path, f"{text.rstrip()}\n\n" if text.strip() else "", "\n".join(lines) + "\n")
    return _engines(path)[name]


def remove_engine(path: Path, name: str) -> None:
    """Remove a table from the file.  Raises Problem."""
    known = _engines(path)
    if name not in known:
        hint = f"{did_you_mean(name, known)}it has: {', '.join(known) or 'none'}"
        raise Problem(Exit.NOT_FOUND, "unknown_engine", f"{path} has no engine {name}", hint)
    _write(path, _without(path, _text(path), name), "")


def _engines(path: Path) -> dict[str, EngineSpec]:
    try:
        return read_engines(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Problem(Exit.USAGE, "bad_engines", str(error), f"correct {path}") from None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _without(path: Path, text: str, name: str) -> str:
    """Return the text without a table.  Raises Problem if that cannot be done by lines."""
    head = rf"\[\s*({re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')\s*[\].]"
    kept: list[str] = []
    notes: list[str] = []  # perhaps of the next table
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = re.match(head, line.lstrip()) is not None
        if not inside:
            kept += [*notes, line]
        notes = [*notes, line] if inside and line.lstrip()[:1] in ("", "#") else []
    left, wanted = "".join(kept + notes), tomllib.loads(text)
    del wanted[name]
    try:
        if tomllib.loads(left) == wanted:
            return left
    except tomllib.TOMLDecodeError:
        pass
    raise Problem(Exit.FAILED, "cannot_edit", f"the table of {name} in {path} cannot be told apart", "edit the file")


def _write(path: Path, before: str, table: str) -> None:
    """Write the file at once, readable by its owner only: variables of engines may be secrets.  Raises Problem."""
    path = path.resolve()  # a link stays one
    try:
        data = (before + table).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        _check(Path(file.name), path)
        Path(file.name).replace(path)
    except OSError as error:
        raise Problem(Exit.FAILED, "cannot_write", f"{path} cannot be written: {error.strerror}") from None
    except UnicodeEncodeError as error:
        text = f"{error.object[error.start :][:20]!r} cannot be written as text"
        raise Problem(Exit.USAGE, "bad_engines", text) from None


def _check(written: Path, path: Path) -> None:
    """Raise Problem, and remove the file, if it has a mistake."""
    try:
        read_engines(written)
    except ValueError as error:
        written.unlink()
        text = str(error).replace(str(written), str(path))
        raise Problem(Exit.USAGE, "bad_engines", text) from None


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: object) -> str:
    """Return a value in TOML, whose texts are those of JSON but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
