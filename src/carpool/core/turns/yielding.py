"""The time at which the holder of a lane is asked for its turn.

The first of these conditions that holds decides; the numbers stand in `request_yield`:

1. A service has preempted the holder, which then comes to no boundary: it is asked, at once, only if it has paused and
   a service needs its memory, or another job has the device to itself, or a user has paused the job.
   A user has paused the job, or it is an engine whose requests have ended: it is asked at once.  Other programs need
   its memory: it is asked to yield at its next boundary, or at once if it is blocked in its allocator.
2. No other job needs the holder to yield: what it has been asked is taken back.
3. The holder is blocked in its allocator, and no job is leaving for it: it is asked at once, because it would keep the
   others for nothing.
4. The holder has been asked already: it is asked more firmly, where another job cannot wait as long as was thought.
5. Another job's turn is due: the holder is asked to yield at its next boundary, or at once if it is an engine.  The
   policy says when a turn is due, within what a switch and moving memory may cost; an urgent job is due at once, and so
   is one that has the device to itself.
6. No other turn is due yet: the timer is set, and until then the holder loses its turn only if it does not use the
   device for longer than the grace.
"""

from __future__ import annotations

from carpool.core.commands import RequestYield, WatchIdle, WithdrawYield
from carpool.core.metering.usage import move_price, worth_us
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import JobId, Micros
from carpool.core.state.device import Lane, YieldAsked
from carpool.core.state.job import Job, WaitState
from carpool.core.state.seat_states import PreemptState
from carpool.core.state.state import State
from carpool.core.turns import engines, order
from carpool.core.turns.order import waiting_elsewhere

#: A job with a signal to handle waits no longer than this for a boundary: Ctrl-C has to feel like Ctrl-C.
URGENT_US = 500_000
#: No holder idles for longer while others wait, however much a move costs.
LONGEST_GRACE_US = 60_000_000
#: The grace lies between the usual one divided by 8 and, where memory has to be moved, 16 times that.
LEAST_EXPONENT, MOST_EXPONENT = -3, 4


def _withdraw(state: State, lane: Lane, holder: Job) -> None:
    lane.due = None
    state.timers.cancel(("yield", lane.id))
    state.timers.cancel(("forced", lane.id))
    if lane.for_memory or (lane.yield_asked is YieldAsked.NO and lane.watch_us is None):
        return
    lane.yield_asked, lane.watch_us = YieldAsked.NO, None
    state.emit(WithdrawYield(holder.id))


def rivals(state: State, lane: Lane) -> list[Job]:
    """Return the jobs for which the holder should yield: for its memory, its turn, or (last) the device alone."""
    elsewhere = [job.id for job in waiting_elsewhere(state, lane)]
    waiter = [] if lane.waiter is None or lane.waiter in elsewhere else [lane.waiter]
    numbers = [*waiter, *elsewhere]
    numbers += [lane.queue[0][-1]] if lane.queue else []
    if lane.holder is not None and state.blocked_by_exclusive(state.jobs[lane.holder]):
        numbers += [number for number in state.devices[lane.device].exclusive_jobs[:1] if number not in numbers]
    return [state.jobs[number] for number in numbers]


def request_yield(state: State, lane: Lane, holder: Job) -> None:
    """Ask for the holder's turn, by the list at the top of this file, or take back what was asked."""
    others = rivals(state, lane)
    if lane.preempt.state is not PreemptState.NONE:  # 1
        _request_of_paused(state, lane, holder)
    elif holder.paused:
        _ask(state, lane, holder.id, holder, forced=True)
    elif lane.reclaimed:
        _ask(state, lane, holder.id, holder, forced=bool(holder.pending))
    elif holder.let_go:
        _ask(state, lane, holder.id, holder, forced=True)
    elif not others:  # 2
        _withdraw(state, lane, holder)
    elif holder.pending and holder.wait is not WaitState.MOVING:  # 3
        _ask(state, lane, holder.id, others[-1], forced=True)
    elif lane.yield_asked is not YieldAsked.NO:  # 4
        _ask_again(state, lane, others)
    else:  # 5, 6
        _ask_when_due(state, lane, holder, others)


def _ask_again(state: State, lane: Lane, others: list[Job]) -> None:
    if lane.for_memory and lane.yield_asked is YieldAsked.BOUNDARY:
        lane.for_memory = False
        _force_later(state, lane, others[-1])
    elif others[-1].urgent or state.devices[lane.device].excluding:
        _escalate(state, lane, others)


def _ask_when_due(state: State, lane: Lane, holder: Job, others: list[Job]) -> None:
    wishes = [(due, rival) for rival in others if (due := _due(state, lane, holder, rival)) is not None]
    due, rival = min(wishes, key=lambda wish: wish[0], default=(None, others[-1]))
    if due is not None and lane.due is not None and lane.due[0] == rival.id:
        due = min(due, lane.due[1])  # asking again does not put it off
    lane.due = None if due is None else (rival.id, due)
    if due is not None and due <= state.now:
        _ask(state, lane, holder.id, rival, forced=holder.is_engine)
        return
    if due is None:
        state.timers.cancel(("yield", lane.id))
    else:
        state.timers.set(("yield", lane.id), due)
    _watch(state, lane, holder, others, due)


def _escalate(state: State, lane: Lane, others: list[Job]) -> None:
    """Shorten the wait for the holder's boundary, if another job cannot wait as long as was thought."""
    best = next((other for other in others if other.serves), others[-1])
    if (best.urgent or best.serves) and lane.forced_due > state.now + _boundary_timeout_us(state, best):
        _force_later(state, lane, best)


def _request_of_paused(state: State, lane: Lane, holder: Job) -> None:
    """Ask a preempted holder for its turn only if it has paused, and a service needs its memory or it is kept out.

    A preempted holder comes to no boundary.
    """
    waiter = None if lane.waiter is None else state.jobs[lane.waiter]
    needed = waiter is not None and waiter.serves
    if lane.preempt.state is PreemptState.PAUSED and (needed or state.kept_out(holder)):
        _ask(state, lane, holder.id, waiter or holder, forced=True)


def _watch(state: State, lane: Lane, holder: Job, others: list[Job], due: Micros | None) -> None:
    """Let the holder lose its turn only while it does not use the device, until it is asked; a service keeps it."""
    if lane.serves and not holder.rests:
        return
    grace = min(grace_us(state, holder, rival) for rival in others)
    if due is not None and due <= state.now + grace:
        return
    if lane.watch_us is None or not grace // 2 <= lane.watch_us <= 2 * grace:
        lane.watch_us = grace
        state.emit(WatchIdle(holder.id, grace))


def grace_us(state: State, holder: Job, best: Job) -> Micros:
    """Return how long the holder may be off the device before it loses its turn to ``best``.

    At least as long as the move costs: so waiting and moving together cost at most twice what they would if the length
    of the pause were known (ski rental).  Beyond that a job's own pauses teach: see `adjust_grace`.
    """
    price = move_price(state, holder, best)
    exponent = holder.grace_exponent if price else min(holder.grace_exponent, 0)
    usual = state.settings.grace_us
    return max(usual << exponent if exponent >= 0 else usual >> -exponent, min(price, LONGEST_GRACE_US))


def adjust_grace(state: State, job: Job) -> None:
    """Adapt the grace of a job that lost its turn off the device, by how soon it wants another one."""
    if job.released_us is None:
        return
    away = state.now - job.released_us
    job.released_us = None
    if away < job.released_grace_us:
        job.grace_exponent = min(job.grace_exponent + 1, MOST_EXPONENT)
    elif away > 4 * job.released_grace_us:
        job.grace_exponent = max(job.grace_exponent - 1, LEAST_EXPONENT)


def _due(state: State, lane: Lane, holder: Job, best: Job) -> Micros | None:
    """Return when the holder should give way to ``best``; None: it need not."""
    if best.urgent or state.blocked_by_exclusive(holder):
        return state.now
    if holder.is_engine:
        return engines.due_us(state, lane, holder, best)
    if lane.serves:  # copying does not count: otherwise one that takes longer would begin again for ever
        begun_us = max(lane.turn_us, order.copied_us(state.devices[lane.device], holder))
        return begun_us + state.settings.forced_after_us
    if best.spec.service is not None:
        return state.now
    after = state.policy.switch_after(lazy_view(state), job_view(state, holder), job_view(state, best))
    if after is None:
        return None
    return max(lane.turn_us + shortest_turn(state, holder, best), state.now + after)


def shortest_turn(state: State, holder: Job, best: Job) -> Micros:
    """Return the shortest time that the holder's turn lasts.

    That is a quantum, until the holder's memory is back, and long enough that what follows it costs no more than its
    share of time.
    """
    settings = state.settings
    price = max(holder.usage.switch_cost_us, best.usage.switch_cost_us)
    worth = worth_us(price, settings.max_switch_share_ppm)
    to_move = move_price(state, holder, best)
    moving = max(worth_us(to_move, settings.max_move_share_ppm), holder.stays_us - holder.attained_us) if to_move else 0
    return max(state.quanta[holder.device], worth, moving, holder.restoring_us)


def _force_later(state: State, lane: Lane, best: Job) -> None:
    lane.forced_due = state.now + _boundary_timeout_us(state, best)
    state.timers.set(("forced", lane.id), lane.forced_due)


def _boundary_timeout_us(state: State, best: Job) -> Micros:
    """Return how long to wait for a boundary."""
    timeout = state.settings.forced_after_us
    if best.urgent:
        return min(timeout, URGENT_US)
    return max(0, min(timeout, order.latest_us(state, best) - state.now)) if best.serves else timeout


def _ask(state: State, lane: Lane, holder: JobId, best: Job, forced: bool) -> None:
    wanted = YieldAsked.FORCED if forced else YieldAsked.BOUNDARY
    if lane.yield_asked >= wanted:
        return
    lane.yield_asked = wanted
    state.timers.cancel(("yield", lane.id))
    state.emit(RequestYield(holder, forced))
    if forced:
        state.timers.cancel(("forced", lane.id))
    else:
        _force_later(state, lane, best)


def yield_ignored(state: State, lane: Lane) -> None:
    """Force the yield of a holder that did not come to a boundary in time."""
    others = rivals(state, lane)
    if lane.holder is not None and (others or lane.reclaimed):
        best = others[-1] if others else state.jobs[lane.holder]
        _ask(state, lane, lane.holder, best, forced=True)
