"""When a holder is asked for its turn: when the switch is worth it; at once if somebody is urgent or it is stuck."""

from __future__ import annotations

from carpool.core.commands import RequestYield, WithdrawYield
from carpool.core.model import JobId, Micros
from carpool.core.snapshot import job_view, lazy_view
from carpool.core.state import Job, Lane, State, YieldAsked

#: From this share on a switch may cost as much as it likes.
WHOLE_PPM = 1_000_000
#: A job with a signal to handle waits no longer than this for a boundary: Ctrl-C has to feel like Ctrl-C.
URGENT_US = 500_000


def withdraw(state: State, lane: Lane, holder: Job) -> None:
    lane.due = None
    state.timers.cancel(("yield", lane.id))
    state.timers.cancel(("forced", lane.id))
    if lane.yield_asked is not YieldAsked.NO and not lane.for_memory:
        lane.yield_asked = YieldAsked.NO
        state.emit(WithdrawYield(holder.id))


def press(state: State, lane: Lane, holder: Job, best: Job) -> None:
    """Somebody waits: ask for the turn now, later, or not at all."""
    if holder.pending:
        _ask(
            state, lane, holder.id, best, forced=True
        )  # blocked in its allocator: it would keep the others for nothing
        return
    if lane.yield_asked is not YieldAsked.NO:
        if lane.for_memory and lane.yield_asked is YieldAsked.BOUNDARY:
            lane.for_memory = False
            _force_later(state, lane, best)
        elif best.urgent and lane.forced_due > state.now + URGENT_US:
            _force_later(state, lane, best)
        return
    due = _due(state, lane, holder, best)
    if due is not None and lane.due is not None and lane.due[0] == best.id:
        due = min(due, lane.due[1])  # asking again does not put it off
    lane.due = None if due is None else (best.id, due)
    if due is None:
        state.timers.cancel(("yield", lane.id))
    elif due <= state.now:
        _ask(state, lane, holder.id, best, forced=False)
    else:
        state.timers.set(("yield", lane.id), due)


def _due(state: State, lane: Lane, holder: Job, best: Job) -> Micros | None:
    """When the holder should give way to ``best``; None: it need not."""
    if best.urgent:
        return state.now
    after = state.policy.switch_after(lazy_view(state), job_view(state, holder), job_view(state, best))
    if after is None:
        return None
    return max(lane.turn_us + shortest_turn(state, holder, best), state.now + after)


def shortest_turn(state: State, holder: Job, best: Job) -> Micros:
    """A turn lasts at least a quantum, and long enough that the switch after it stays below its share."""
    share = state.settings.max_switch_share_ppm
    price = max(holder.usage.switch_cost_us, best.usage.switch_cost_us)
    worth = 0 if share >= WHOLE_PPM else price * WHOLE_PPM // share
    return max(state.settings.quantum_us, worth)


def _force_later(state: State, lane: Lane, best: Job) -> None:
    patience = state.settings.forced_after_us
    lane.forced_due = state.now + (min(patience, URGENT_US) if best.urgent else patience)
    state.timers.set(("forced", lane.id), lane.forced_due)


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
    """The holder did not come to a boundary in time."""
    if lane.holder is not None and lane.queue:
        _ask(state, lane, lane.holder, state.jobs[lane.queue[0][-1]], forced=True)
