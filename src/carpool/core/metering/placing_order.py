"""The order in which queued jobs are placed: that of the policy, or of users first and of the policy among the jobs of
each (`Policy.by_user`).

A user who has used less device time comes first.  Each job that a user has on a device already counts as `RUNNING_US`
more, because what the job is going to use is not known: without that, the first of several users who have used the same
would get all places that become free at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from carpool.core.model import JobId, Micros
from carpool.core.state.state import State

#: Device time that a job on a device counts for, beside what its user has used.
RUNNING_US: Micros = 60_000_000


def standing(state: State, account: int) -> Micros:
    """Return the device time that counts against a user whose jobs wait for devices."""
    return state.uses.of(account, state.now) + state.in_use.running[account] * RUNNING_US


@dataclass(frozen=True, slots=True)
class UsersAhead:
    """Users whose waiting jobs come before those of a user: all jobs of ``less``, earlier jobs of ``equal``."""

    less: set[int]
    equal: set[int]


def users_ahead(state: State, account: int) -> UsersAhead | None:
    """Find the users who have used less than this user, or as much, this user included.  None: users do not count."""
    others = waiting_users(state) - {account}
    if not others or not state.by_user:
        return None
    own, standings = standing(state, account), {other: standing(state, other) for other in others}
    equal = {other for other, used in standings.items() if used == own}
    return UsersAhead({other for other, used in standings.items() if used < own}, equal | {account})


def placing_order(state: State) -> Iterator[JobId]:
    """Yield the queued jobs in order.  What is placed meanwhile counts in the order of those that follow."""
    numbers = [number for _, _, number in state.queue]
    return _by_use(state, numbers) if state.by_user and len(waiting_users(state)) > 1 else iter(numbers)


def waiting_users(state: State) -> set[int]:
    """Return the accounts of queued jobs."""
    return {asked.account for asked in state.requirements}


def _by_use(state: State, numbers: list[JobId]) -> Iterator[JobId]:
    recovering = [number for number in numbers if state.jobs[number].recovering]
    yield from recovering
    waiting: dict[int, deque[JobId]] = {}
    for number in numbers[len(recovering) :]:
        waiting.setdefault(state.jobs[number].spec.account, deque()).append(number)
    order = [_entry(state, account, jobs) for account, jobs in waiting.items()]
    heapq.heapify(order)
    while order:
        account = heapq.heappop(order)[-1]
        yield waiting[account].popleft()
        if waiting[account]:
            heapq.heappush(order, _entry(state, account, waiting[account]))


def _entry(state: State, account: int, jobs: deque[JobId]) -> tuple[Micros, int, int]:
    """Return a user's place in the order: among equal standings the user whose next job has come first leads."""
    return standing(state, account), state.jobs[jobs[0]].arrival, account
