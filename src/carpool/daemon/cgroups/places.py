"""Places in which the daemon makes its groups, and the controllers that it gets there.

The daemon's groups lie below the group that it runs in, so that every limit from above holds for jobs, too.  While
processes are left in the groups of an earlier daemon, a new daemon uses these groups again, wherever it has been
started: a user's jobs must be in one group for a limit to hold for all of them.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from carpool.daemon.cgroups.group import KILL, PROCESSES, SUBTREE, Group
from carpool.daemon.cgroups.hierarchies import PIDS, UNIFIED, Hierarchies
from carpool.protocol.paths import Home, read_regular

log = logging.getLogger(__name__)
#: The group of a daemon that had to leave its own, because that has controllers for groups below: version 2 then
#: allows no processes there.
LEAF = "carpool-daemon"


@dataclass(frozen=True, slots=True)
class Tree:
    """The daemon's groups in one hierarchy: ``root/user-UID``, and in there ``shims`` and one group for each job.

    ``controllers``: those that limit here.  In a hierarchy of version 1 for memory alone the users' groups have the
    processes themselves.
    """

    root: Group
    unified: bool
    controllers: frozenset[str]

    @property
    def per_job(self) -> bool:
        """Whether each job has a group of its own here."""
        return self.unified or PIDS in self.controllers

    def user(self, uid: int) -> Group:
        """Return the group of all jobs of a user."""
        return Group(self.root.path / f"user-{uid}")

    def shims(self, uid: int) -> Group:
        """Return the group of a user's shims."""
        return Group(self.user(uid).path / "shims")

    def job(self, uid: int, name: str) -> Group:
        """Return the group of one attempt of a job, by its name."""
        return Group(self.user(uid).path / name)


@dataclass(slots=True)
class Places:
    """The trees, and why controllers are missing, by controller (`UNIFIED`: version 2 itself).

    ``earlier``: roots of an earlier daemon, in which processes run, in hierarchies that are not used any more.
    """

    trees: list[Tree] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    earlier: list[Group] = field(default_factory=list)


def find_places(home: Home, here: Hierarchies, wanted: Iterable[str]) -> Places:
    """Make the daemon's root in each hierarchy that is needed.  Failures are part of the result, not raised."""
    places, record = Places(), _recorded(home.control_groups)
    by_group: dict[Path, set[str]] = {} if here.unified is None else {here.unified: set()}
    for controller in wanted:
        own = here.legacy.get(controller, here.unified)
        if own is None:
            places.missing[controller] = f"no hierarchy of control groups with the controller {controller} is mounted"
        else:
            by_group.setdefault(own, set()).add(controller)
    if here.unified is None:
        places.missing[UNIFIED] = "no hierarchy of version 2 is mounted"
    name = name_of(home)
    for own, controllers in by_group.items():
        _add_tree(places, own, _root(own, name, record), controllers, unified=own == here.unified)
    used = [tree.root for tree in places.trees]
    places.earlier.extend(root for root in record if root not in used and _is_in_use(root, name))
    _write_record(home.control_groups, [*used, *places.earlier])
    return places


def name_of(home: Home) -> str:
    """Return the name of the daemon's groups, which no other daemon has, here or in a container with its own files."""
    status = home.root.stat()
    identity = f"{home.root.resolve()}:{status.st_dev}:{status.st_ino}"
    return f"carpool-{hashlib.sha256(os.fsencode(identity)).hexdigest()[:12]}"


def _root(own: Path, name: str, record: list[Group]) -> Group:
    """Return the root of the earlier daemon in the same hierarchy, if processes are in it, or else a new root."""
    base = own.parent if own.name == LEAF else own
    used = (root for root in record if _same_hierarchy(root.path, own) and _is_in_use(root, name))
    return next(used, Group(base / name))


def _is_in_use(root: Group, name: str) -> bool:
    """Whether the group exists, is this daemon's, and cannot be removed."""
    if root.path.name != name:
        return False
    with suppress(OSError):
        root.remove()
    return root.path.exists()


def _same_hierarchy(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def _add_tree(places: Places, own: Path, root: Group, controllers: set[str], *, unified: bool) -> None:
    try:
        root.make()
        if unified and not (root.path / KILL).exists():
            raise OSError(errno.ENOSYS, "groups are killed at once from Linux 5.14 on")
    except OSError as error:
        lost = {UNIFIED, *controllers} if unified else controllers
        places.missing.update(dict.fromkeys(lost, _text(error, root.path)))
        return
    had = set(controllers)
    if unified:
        try:
            _enable(root.path.parent, own, controllers)
            _enable(root.path, own, controllers)
        except OSError as error:
            places.missing.update(dict.fromkeys(controllers, _text(error, root.path.parent)))
            had = set()
    places.trees.append(Tree(root, unified, frozenset(had)))


def _enable(group: Path, own: Path, controllers: Iterable[str]) -> None:
    """Let the groups below have these controllers, in version 2.  ``own``: where this process is.  Raises OSError."""
    at = Group(group)
    missing = [name for name in sorted(controllers) if name not in at.words(SUBTREE)]
    if not missing:
        return
    text = " ".join(f"+{name}" for name in missing)
    try:
        at.write(SUBTREE, text)
    except OSError as error:
        if error.errno != errno.EBUSY or group != own:
            raise
        _step_aside(at, text)


def _step_aside(own: Group, text: str) -> None:
    """Move this process, whose group may have no processes, to a group below, and back if others are there."""
    leaf = Group(own.path / LEAF)
    leaf.make()
    leaf.write(PROCESSES, "0")
    try:
        own.write(SUBTREE, text)
    except OSError:
        own.write(PROCESSES, "0")
        leaf.remove()
        raise


def _text(error: OSError, path: Path) -> str:
    return f"{path}: {error.strerror or error}"


def _recorded(path: Path) -> list[Group]:
    """Return the roots of the daemon before; none if there is no record: then new places are found."""
    try:
        found = msgspec.json.decode(read_regular(path), type=list[str])
    except (OSError, msgspec.DecodeError):
        return []
    return [Group(Path(text)) for text in found]


def _write_record(path: Path, roots: list[Group]) -> None:
    """Record the roots for the next daemon; after a restart of the machine there are no groups."""
    try:
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode([str(root.path) for root in roots]))
        new.replace(path)
    except OSError as error:
        log.warning("%s cannot be written: the next daemon may not find the groups of jobs: %s", path, error)
