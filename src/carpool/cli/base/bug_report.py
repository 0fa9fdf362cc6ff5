"""The file for a bug report, without names, commands, paths and environments; users can look before sending it."""

from __future__ import annotations

import io
import json
import os
import platform
import pwd
import re
import socket
import sys
import tarfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from carpool.cli.base.doctor_checks import DoctorCheck
from carpool.cli.base.options_common import whole_file
from carpool.protocol.client import ClientError, DaemonClient
from carpool.protocol.paths import Home, open_regular

REMOVED = "(removed)"
#: Fields whose texts are Carpool's own words, or names of devices.  All other texts are left out.
OWN_WORDS = frozenset((
    "allocation", "answer", "answers", "cause", "checkpoint", "code", "device", "devices", "further", "id",
    "level", "memory_class", "model", "outcome", "oversubscribe", "phase", "placement", "policy", "quantum_from",
    "sharing", "sort", "throttled", "version",
))  # fmt: skip
#: Numbers that stand for users.
USERS = frozenset(("owner", "uid", "gid", "held_by", "paused_by"))
#: Fields that users have filled; they are left out whole, with their keys.
FILLED = frozenset(("env", "parameters", "processes", "notify", "attempts", "past"))
#: A value that is a word, and no path.
_WORD = re.compile(r"[\w .:()+-]{1,64}")
#: Texts of users in objects as Python prints them.
_PRINTED = re.compile(
    r"\b(name|user|by|text|why|kind|note|argv|cwd|group|path)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
)
#: Shortest name that is replaced: a shorter one is a part of too many words.
SHORTEST = 3
FIRST_PERSON = 1000  # uids below are the system's


class Anonymous:
    """``names``: further texts that are left out of lines, such as the names of jobs."""

    def __init__(self, home: str, names: Iterable[str] = ()) -> None:
        self._users: dict[int, int] = {}
        people = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= FIRST_PERSON]
        known = {home: "$CARPOOL_HOME", os.path.expanduser("~"): "~", socket.gethostname(): "HOST"}  # noqa: PTH111
        known |= dict.fromkeys((*people, *names), REMOVED)
        self._known = {text: instead for text, instead in known.items() if len(text) >= SHORTEST and text != "root"}
        pieces = sorted(map(re.escape, self._known), key=len, reverse=True)
        self._pattern = re.compile("|".join(pieces)) if pieces else None

    def value(self, value: Any, field: str = "") -> Any:
        """Return a value from JSON without texts of users; numbers stay, users become 1, 2, 3 ... as they appear."""
        if isinstance(value, dict):
            return {name: self.value(each, name) for name, each in value.items() if name not in FILLED}
        if isinstance(value, list):
            return [self.value(each, field) for each in value]
        if isinstance(value, str):
            return _own_words(value, field)
        return self._user(value) if field in USERS and type(value) is int else value

    def _user(self, uid: int) -> int:
        return self._users.setdefault(uid, len(self._users) + 1) if uid else 0

    def line(self, text: str) -> str:
        """Return a line of the daemon's log, or of a check, with known names and texts in printed objects replaced."""
        text = _PRINTED.sub(lambda found: f"{found[1]}={REMOVED!r}", text)
        return self._pattern.sub(lambda found: self._known[found[0]], text) if self._pattern else text


def _own_words(text: str, field: str) -> str:
    return text if not text or (field in OWN_WORDS and _WORD.fullmatch(text)) else REMOVED


MOST_EVENTS = 5000
MOST_JOBS = 500
LOG_BYTES = 256 << 10


def write_report(path: Path, home: Path, checks: Sequence[DoctorCheck]) -> dict[str, int]:
    """Write a compressed tar file; return the size of each file in it, in bytes.  Raises OSError.

    Parts that are missing, because no daemon runs or its log is another user's, are named in ``about.json``.
    """
    found, missing = _from_daemon(home)
    anonymous = Anonymous(str(home), [job["name"] for job in found.get("jobs.json", ())])
    parts = {name: _json(anonymous.value(part)) for name, part in found.items() if name != "events.jsonl"}
    if "events.jsonl" in found:
        parts["events.jsonl"] = b"".join(map(_json, _events(anonymous, found["events.jsonl"])))
    parts["checks.json"] = _json([_check(anonymous, check) for check in checks])
    try:
        parts["daemon.log"] = "".join(map(anonymous.line, _tail(Home(home).log))).encode()
    except OSError as error:
        missing["daemon.log"] = error.strerror or ""
    parts["about.json"] = _json(_about() | {"missing": {name: anonymous.line(why) for name, why in missing.items()}})
    _write_archive(path, dict(sorted(parts.items())))
    return {name: len(part) for name, part in sorted(parts.items())}


def _write_archive(path: Path, parts: dict[str, bytes]) -> None:
    with whole_file(path) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, part in parts.items():
            member = tarfile.TarInfo(f"carpool-report/{name}")
            member.size, member.mtime = len(part), int(time.time())
            archive.addfile(member, io.BytesIO(part))


def _from_daemon(home: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the daemon's answers by file, and the reason where answers are missing."""
    found: dict[str, Any] = {}
    try:
        with DaemonClient(home) as client:
            version, policy = client.version(), client.policy()
            found["daemon.json"] = {
                "version": version.version, "api": version.api, "started_us": version.started_us,
                "threads": version.threads, "policy": policy.name, "placement": policy.placement,
                "settings": policy.settings,
            }  # fmt: skip
            found["devices.json"] = msgspec.to_builtins(client.device_list())
            found["jobs.json"] = msgspec.to_builtins(client.jobs(limit=MOST_JOBS))
            found["events.jsonl"] = [*islice(client.past_events(), MOST_EVENTS)][::-1]
    except (ClientError, OSError) as error:
        return found, {"daemon": str(error)}
    return found, {}


def _events(anonymous: Anonymous, events: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Make the data of events anonymous; kinds of events are Carpool's own words and stay."""
    for event in events:
        yield msgspec.to_builtins(event) | {"data": anonymous.value(event.data)}


def _check(anonymous: Anonymous, check: DoctorCheck) -> dict[str, Any]:
    return {"name": check.name, "ok": check.ok, "found": anonymous.line(check.found)}


def _about() -> dict[str, Any]:
    wanted = {"carpool", "aiohttp", "msgspec", "click", "rich", "torch", "nvidia-ml-py", "cuda-bindings"}
    present = {each.name: each.version for each in distributions() if each.name in wanted}
    return {
        "python": sys.version,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "packages": dict(sorted(present.items())),
    }


def _tail(path: Path) -> Iterator[str]:
    """The last lines of a log.  Raises OSError."""
    with open(open_regular(path), "rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        lines = deque(file.read().decode(errors="replace").splitlines(keepends=True))
    if path.stat().st_size > LOG_BYTES:
        lines.popleft()  # the rest of an incomplete line
    yield from lines


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
