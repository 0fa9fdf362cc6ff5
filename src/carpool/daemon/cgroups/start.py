"""Opening control groups at the daemon's start, and what the log and `carpool doctor` say of them."""

from __future__ import annotations

import logging

from carpool.daemon.cgroups.hierarchies import MEMORY, PIDS, UNIFIED, Hierarchies, hierarchies_here
from carpool.daemon.cgroups.job_groups import GroupLimits, JobGroups
from carpool.daemon.cgroups.places import Places, find_places
from carpool.protocol.api import ControlGroups
from carpool.protocol.paths import Home
from carpool.protocol.units import format_size

log = logging.getLogger(__name__)


def open_groups(home: Home, limits: GroupLimits, here: Hierarchies | None = None) -> tuple[JobGroups, ControlGroups]:
    """Find and report the groups before the daemon, which may have to leave its own group, starts any process.

    ``here``: the hierarchies, if not those of this process.
    """
    places = find_places(home, here or hierarchies_here(), limits.controllers)
    found = report(places, limits)
    log.info("control groups: %s", found.found)
    for problem in found.problems:
        log.warning("%s", problem)
    return JobGroups(places, limits), found


def report(places: Places, limits: GroupLimits) -> ControlGroups:
    """Say for people which groups and limits are in force."""
    roots = [str(tree.root.path) for tree in places.trees if tree.unified]
    parts = [f"each job has its own in {root}" for root in roots]
    if not parts:
        parts = [f"jobs have none of their own, and are ended process by process ({places.missing[UNIFIED]})"]
    wanted = _wanted(limits)
    parts += [text for controller, (_, text) in wanted.items() if controller not in places.missing]
    problems = [
        f"{name} in limits.toml does not hold: {places.missing[controller]}"
        for controller, (name, _) in wanted.items()
        if controller in places.missing
    ]
    return ControlGroups("; ".join(parts), problems)


def _wanted(limits: GroupLimits) -> dict[str, tuple[str, str]]:
    """Return by controller the name of the limit that is set, and its text for people."""
    found = {}
    if limits.memory is not None:
        found[MEMORY] = "memory", f"at most {format_size(limits.memory)} of memory for the jobs of a user"
    if limits.processes is not None:
        found[PIDS] = "processes", f"at most {limits.processes} processes and threads of a job"
    return found
