"""``python -m carpool.daemon``: start the daemon, and tell the caller when it is ready or why it cannot start."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec

from carpool.core.model import JobPhase, Settings
from carpool.core.policies import POLICIES
from carpool.core.policies.placement import PLACEMENTS
from carpool.daemon.api.metrics import bound_socket
from carpool.daemon.app import Daemon, Start
from carpool.daemon.cgroups.job_groups import GroupLimits, open_groups
from carpool.daemon.config.device_choice import GpuDiscovery, choose_devices, described, settle_devices
from carpool.daemon.config.limits import UserLimits, read_limits
from carpool.daemon.config.options import DaemonOptions, check_store_of, parse_options
from carpool.daemon.config.settings import changed_settings
from carpool.daemon.home import Rights, take_home
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.contents import StoredJournal, read_contents
from carpool.daemon.journal.salvage import Acknowledged, wal_damage
from carpool.daemon.journal.schema import open_journal
from carpool.daemon.journal.writer import empty_log_at_start
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.seats.ledger import joined_that_live
from carpool.daemon.system.alarms import AlarmLimit
from carpool.daemon.system.background import start_threads
from carpool.daemon.system.clock import boot_id
from carpool.daemon.system.errors import StartupError, file_of_home, is_refusal, refusal_text
from carpool.daemon.system.log_setup import configure_log
from carpool.daemon.system.processes import collect_rarely, lower_oom_score, raise_file_limit
from carpool.protocol.api import ErrorBody
from carpool.runtime.user_process import begin_session_keyring


def main(argv: Sequence[str] | None = None) -> int:
    """Run a daemon until it is asked to stop; return the exit status.  The caller is told why a start has failed."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        options = parse_options(arguments)
    except StartupError as error:
        return _failed(error, Ready(_ready_fd(arguments)))
    lower_oom_score()
    ready = Ready(options.ready_fd)
    try:
        if os.geteuid() == 0:  # a daemon of an ordinary user keeps that user's keys, and serves no other users
            begin_session_keyring()
        rights = take_home(options)
        raise_file_limit()
        limits = read_limits(options.home)
        damage = wal_damage(options.home.journal_log)  # before SQLite discards the log's content
        connection = open_journal(options.home.journal)
        _configure_log(options, limits)
        with file_of_home(options.home.acknowledged):
            acknowledged = Acknowledged(options.home.acknowledged)
        contents = read_contents(connection, rights.privileges, options.home, acknowledged.last, damage)
        _check_owners(contents.jobs, rights.privileges)
        empty_log_at_start(connection)
        asyncio.run(_serve(options, rights, limits, StoredJournal(connection, contents, acknowledged), ready))
        os.close(rights.lock)
    except StartupError as error:
        return _failed(error, ready)
    except Exception as error:
        if not is_refusal(error):
            raise
        text = f"the system refuses what the daemon needs: {refusal_text(error)}"
        return _failed(StartupError("system_error", text, "start it again; jobs that run go on"), ready)
    return 0


class Ready:
    """The program that started the daemon and reads the outcome from descriptor ``fd``; None: no program reads it."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def tell(self, message: object) -> None:
        """Send a message; only the first one, because later the descriptor's number may be another file's."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.write(fd, msgspec.json.encode(message) + b"\n")
            os.close(fd)
        except OSError:
            logging.getLogger(__name__).warning("the reader of --ready-fd %d has gone", fd)


def _check_owners(jobs: Sequence[JobRecord], privileges: Privileges) -> None:
    """Refuse to start with unfinished jobs that this daemon could neither start nor end.  Raises StartupError."""
    for job in jobs:
        if job.phase is not JobPhase.ENDED and (why := privileges.why_not(job.owner)):
            text = f"job {job.id} of uid {job.owner} has not ended: {why}"
            hint = "start the daemon without --user until these jobs have ended, or cancel them there"
            raise StartupError("jobs_of_root", text, hint)


#: The journal's thread must not keep the interpreter from the loop for long: the default of 5 ms is a whole turn.
SWITCH_INTERVAL_S = 0.0002


async def _serve(
    options: DaemonOptions, rights: Rights, limits: UserLimits, stored: StoredJournal, ready: Ready
) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    collect_rarely()
    start_threads()
    asyncio.get_running_loop().set_exception_handler(_report)
    daemon = _daemon(options, rights.privileges, limits, stored)
    daemon.handle_signals()
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    note = daemon.options.devices_note
    started.add_done_callback(lambda _: ready.tell({"ok": True, "pid": os.getpid(), "note": note}))
    await daemon.run(started, rights.listener)
    if daemon.helper_lost:
        raise StartupError(
            "helper_lost", "the helper, which runs as root, has ended", "start the daemon again: jobs go on"
        )


def _daemon(options: DaemonOptions, privileges: Privileges, limits: UserLimits, stored: StoredJournal) -> Daemon:
    """Make the daemon with the settings of the journal and the available devices.  Raises StartupError."""
    for registry in (POLICIES, PLACEMENTS):
        registry.limit_calls(AlarmLimit())
    wanted = GroupLimits(None if limits.memory is None else int(limits.memory), limits.processes)
    metrics = None if options.metrics is None else bound_socket(options.metrics)
    start = Start(boot_id(), privileges, *open_groups(options.home, wanted), metrics)
    settings = _settings_in_force(options, stored.connection)
    with closing(GpuDiscovery(suspends=privileges.suspends)) as gpus:
        options = dataclasses.replace(choose_devices(options, stored.connection), settings=settings)
        options = described(dataclasses.replace(options, devices=gpus.resolved(options.devices, options.memory)))
        check_store_of(options)
        with file_of_home(options.home.ledger, "read"):
            joined = joined_that_live(options.home.ledger)
        options = dataclasses.replace(options, devices=settle_devices(options, stored.connection, privileges, joined))
        found = {option.id: gpus.make(option) for option in options.devices}
        return Daemon(options, limits, stored, found, start)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a callback or a task; without a traceback if the system has refused something."""
    error = context.get("exception")
    if error is not None and is_refusal(error):
        logging.getLogger(__name__).error("%s: %s", context["message"], refusal_text(error))
    else:
        loop.default_exception_handler(context)


def _settings_in_force(options: DaemonOptions, connection: sqlite3.Connection) -> Settings:
    """Return the settings made by `carpool policy`, unless this start gives others.  Raises StartupError."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
    given = row is None or options.settings_given
    chosen = options.settings if given else msgspec.json.decode(row[0], type=Settings)
    if given:
        return chosen
    try:
        return changed_settings(chosen, chosen.policy, {}, chosen.placement)
    except ValueError as error:
        raise StartupError(
            "policy_lost",
            f"the policy in force, {chosen.policy}, can no longer be loaded: {error}",
            "fix the policy, or choose another one: carpool up --policy fair, then carpool policy fair to keep it",
        ) from None


def _configure_log(options: DaemonOptions, limits: UserLimits) -> None:
    path = None if options.foreground_log else options.home.log
    configure_log(path, options.log_format, limits.log_lines_per_minute)
    if os.geteuid() == 0:
        text = (
            "this daemon runs wholly as root; `carpool up --user NAME` leaves root to a small helper (docs/security.md)"
        )
        logging.getLogger(__name__).info(text)


def _ready_fd(arguments: Sequence[str]) -> int | None:
    """Return the caller's descriptor, even when the rest of the command line is wrong."""
    for name, value in itertools.pairwise(arguments):
        if name == "--ready-fd" and value.isdigit():
            return int(value)
    return None


def _failed(error: StartupError, ready: Ready) -> int:
    ready.tell(ErrorBody(error.info))  # first: standard error is a log, on a disk that may be full
    hint = f"  {error.info.hint}\n" if error.info.hint else ""
    with suppress(OSError):  # bypasses Python's buffer, which would fail again at exit and change the status
        os.write(2, f"carpoold: {error.info.message}\n{hint}".encode())
    return 1


if __name__ == "__main__":
    sys.exit(main())
