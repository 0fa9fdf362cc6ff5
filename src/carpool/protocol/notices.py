"""Notices: the targets that the daemon tells of a job's start and end, and the result of each attempt."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

START, END, FAILURE, TIMEOUT = EVENTS = ("start", "end", "failure", "timeout")


class NotifyTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A target of notices: a URL that gets JSON by POST, or a command.

    ``on``: some of `EVENTS`; ``end`` is every end, the others are ends that are also failures or time limits.
    """

    on: list[str]
    webhook: str = ""
    command: list[str] = []


class NoticeInfo(msgspec.Struct, frozen=True):
    """One event of a job that a target hears of."""

    event: str
    attempt: int
    target: str  # as `shown_target` writes it
    state: str  # "owed" | "sent" | "failed"
    tries: int
    text: str = ""  # what was wrong with the last try


class NoticeList(msgspec.Struct, frozen=True):
    """GET /v1/jobs/{id}/notices: in the order in which they came up."""

    notices: list[NoticeInfo]


def shown_target(target: NotifyTarget) -> str:
    """Return the target as shown to users: a path in a URL, like a word of a command, may be a secret."""
    if not target.webhook:
        return f"exec:{target.command[0]}"
    parts = urlsplit(target.webhook)
    return f"webhook:{parts.scheme}://{parts.hostname}{'' if parts.port is None else f':{parts.port}'}"


def check_target(target: NotifyTarget) -> None:
    """Check a target.  Raises ValueError with a text for users."""
    unknown = sorted(set(target.on) - set(EVENTS))
    if unknown or not target.on:
        raise ValueError(f"{unknown[0] if unknown else ''!r} is not an event: write some of {', '.join(EVENTS)}")
    if bool(target.webhook) == bool(target.command):
        raise ValueError("a target is either webhook:URL or exec:COMMAND")
    if target.webhook:
        _check_url(target.webhook)
    elif not target.command[0] or "\0" in "".join(target.command):
        raise ValueError("exec: has no command that can be run")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("webhook: needs a URL that begins with http:// or https:// and names a host")
    if parts.username is not None or parts.fragment:
        raise ValueError("webhook: a URL here has neither a user's name nor a #fragment")
