"""Anonymous answers of the daemon, for bug reports: without names, commands, paths and environments."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterable
from typing import Any

REMOVED = "(removed)"
#: Fields whose texts are Carpool's own words, or names of devices.  All other texts are left out.
OWN_WORDS = frozenset((
    *("allocation", "answer", "answers", "cause", "checkpoint", "code", "device", "devices", "engine", "further", "id"),
    *("level", "memory_class", "model", "outcome", "oversubscribe", "phase", "placement", "policy", "quantum_from"),
    *("sharing", "sort", "throttled", "version"),
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
            return value if not value or (field in OWN_WORDS and _WORD.fullmatch(value)) else REMOVED
        if field in USERS and isinstance(value, int) and value is not True:
            return self._users.setdefault(value, len(self._users) + 1) if value else 0
        return value

    def line(self, text: str) -> str:
        """Return a line of the daemon's log, or of a check, with known names and texts in printed objects replaced."""
        text = _PRINTED.sub(lambda found: f"{found[1]}={REMOVED!r}", text)
        return self._pattern.sub(lambda found: self._known[found[0]], text) if self._pattern else text
