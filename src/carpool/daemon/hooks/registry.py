"""The features of the daemon that take part in the life of jobs: one line for each, in the order of their calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from carpool.core.events import Event
from carpool.core.model import DeviceId
from carpool.daemon.cgroups.job_groups import JobGroups
from carpool.daemon.config.limits import UserLimits
from carpool.daemon.hooks.base import JobHooks
from carpool.daemon.hooks.breakdowns import JobBreakdowns
from carpool.daemon.hooks.control_groups import ControlGroupHook, CoreDumps
from carpool.daemon.hooks.engine_requests import EngineRequests
from carpool.daemon.hooks.limit_signals import LimitSignals
from carpool.daemon.hooks.notice_delivery import deliver
from carpool.daemon.hooks.notices import Notices
from carpool.daemon.hooks.predictions import PredictionChecks
from carpool.daemon.hooks.removed_directories import RemovedDirectories
from carpool.daemon.hooks.retention import Keeping, Retention
from carpool.daemon.jobs.table import JobTable
from carpool.daemon.journal.events import JournalRemoval
from carpool.daemon.journal.notices import NoticeTable
from carpool.daemon.journal.rows import NoticeRow
from carpool.daemon.journal.writer import Journal
from carpool.daemon.privileges.base import Privileges
from carpool.protocol.paths import Home


@dataclass(frozen=True, slots=True)
class HookParts:
    """The parts that features are made of.

    ``notices``: those of the journal; ``host_devices``: devices whose jobs compute on the host's processors.
    """

    home: Home
    privileges: Privileges
    limits: UserLimits
    jobs: JobTable
    journal: Journal
    groups: JobGroups
    notices: Iterable[NoticeRow]
    host_devices: Collection[DeviceId]
    post: Callable[[Event], None]


def job_hooks(parts: HookParts) -> JobHooks:
    """Return all features."""
    hooks, limits = JobHooks(), parts.limits
    keeping = Keeping(int(limits.keep_for), limits.keep_jobs, limits.keep_events)
    directories = RemovedDirectories(parts.home, parts.privileges)
    removal = JournalRemoval(parts.journal, parts.home.journal)
    hooks.register(
        [
            ControlGroupHook(parts.groups),
            CoreDumps(limits.core_dumps),
            LimitSignals(parts.jobs),
            EngineRequests(parts.post),
            JobBreakdowns(parts.jobs, parts.journal, parts.host_devices),
            Notices(NoticeTable(parts.journal), parts.notices, partial(deliver, parts.privileges, parts.groups)),
            PredictionChecks(parts.home, parts.jobs, enabled=limits.check_predictions),
            Retention(parts.jobs, removal, directories, keeping, hooks.forgotten),
        ]
    )
    return hooks
