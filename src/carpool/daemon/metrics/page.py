"""The page that Prometheus reads: counts of events and of facts, and the daemon's measurements of itself.

Times are those of the core's clock: no time that a job writes into its seat counts as longer than the job's turn.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import Cause, Micros, Outcome
from carpool.daemon.metrics.present import Now, Present
from carpool.facts.fact import Fact, Told, What
from carpool.protocol.metrics import new_registry, page_of

#: Upper bounds in seconds: of a switch from one job to the next, and of waiting.
SWITCH_S = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
CAUSES = frozenset(Cause)
#: The events and commands that are counted themselves, and not as facts.
COUNTED = frozenset((
    *(events.RestartBegan, events.RestartEnded, events.Submitted, events.PolicyTimedOut),
    *(commands.RetryJob, commands.EndJob),
))  # fmt: skip
MOVES = {"moved": "moved", "not moved": "failed"}  # how a move ended: result
WAIT_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
#: How late the loop is when a timer is due, in seconds.
LAG_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
LOOK_S = 1.0


class EventCounts:
    """Counts jobs by the events and commands of the core, and turns, waits, requests and moves by their facts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarting = False
        self._counters(registry)
        self._histograms(registry)

    def _counters(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"carpool_{name}", about, labels, registry=registry)

        self._submissions = counter("jobs_submitted", "Jobs accepted.")
        self._ends = counter("jobs_ended", "Jobs that have ended, by outcome.", "outcome")
        for outcome in Outcome:
            self._ends.labels(outcome.value)
        self._retries = counter("job_retries", "Attempts after which the job is started again, by reason.", "why")
        for why in ("memory", "other"):
            self._retries.labels(why)
        self._turns = counter("turns", "Turns that have ended, by cause.", "device", "cause")
        self._turn_seconds = counter("turn_seconds", "Time in which lanes had a holder.", "device")
        self._moves = counter("offloads", "Moves of a job's memory to the host store.", "device", "result")
        self._answers = counter("memory_requests", "Answered requests for device memory.", "device", "answer")
        self._timeouts = counter("policy_timeouts", "Policies that have not answered in time.", "sort")

    def _histograms(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, about: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(f"carpool_{name}", about, ("device",), buckets=bounds, registry=registry)

        self._handovers = histogram("turn_handover_seconds", "Cost of a switch to the job that gives way.", SWITCH_S)
        self._waits = histogram("turn_wait_seconds", "From a job's wish for a turn to the turn.", WAIT_S)
        self._memory_waits = histogram("memory_wait_seconds", "From a request for memory to its grant.", WAIT_S)

    def happened(self, now_us: Micros, happened: Event | Command) -> None:
        """Count an event or command; they arrive in order."""
        if type(happened) in COUNTED:
            self._count(happened)

    def _count(self, happened: Event | Command) -> None:
        match happened:
            case events.RestartBegan():
                self._restarting = True
            case events.RestartEnded():
                self._restarting = False
            case events.Submitted() if not self._restarting:
                self._submissions.inc()
            case events.PolicyTimedOut():
                self._timeouts.labels(happened.sort).inc()
            case commands.RetryJob():
                self._retries.labels("memory" if happened.past.out_of_memory else "other").inc()
            case commands.EndJob():
                self._ends.labels(happened.outcome.value).inc()

    def take(self, told: Told) -> None:
        """Count what has ended."""
        if not isinstance(told, Fact) or told.end_us is None:
            return
        if told.what == What.TURN:
            self._turn(told)
        elif told.what == What.WAITS and told.how == "turn":
            self._waits.labels(told.device).observe(told.lasted_us / 1e6)
        elif told.what == What.MOVE and told.how in MOVES:
            self._moves.labels(told.device, MOVES[told.how]).inc()
        elif told.what in (What.PERSISTENT, What.EPHEMERAL):
            self._request(told)

    def _turn(self, turn: Fact) -> None:
        if turn.start_us is not None:
            self._turn_seconds.labels(turn.device).inc(turn.lasted_us / 1e6)
        if turn.how in CAUSES and turn.usage is not None:
            self._turns.labels(turn.device, turn.how).inc()
            if turn.usage.switch_cost_us:
                self._handovers.labels(turn.device).observe(min(turn.usage.switch_cost_us, turn.lasted_us) / 1e6)

    def _request(self, request: Fact) -> None:
        if request.how in ("granted", "denied"):
            self._answers.labels(request.device, request.how).inc()
        if request.how == "granted":
            self._memory_waits.labels(request.device).observe(request.lasted_us / 1e6)


class DaemonMetrics:
    """All metrics of the daemon.  ``behind_s``: how long the journal's oldest write has waited."""

    def __init__(self, behind_s: Callable[[], float]) -> None:
        self._registry = new_registry()
        self._present: Present | None = None
        self._one_at_a_time = asyncio.Lock()
        self.events = EventCounts(self._registry)
        self._requests = _Requests()
        self._registry.register(self._requests)
        self._lag = Histogram(
            "carpool_loop_lag_seconds", "How late the daemon's loop is.", buckets=LAG_S, registry=self._registry
        )
        self._registry.register(_JournalLag(behind_s))
        ProcessCollector(registry=self._registry)

    def look_up(self, now: Now) -> None:
        """Add the present state to the page from now on."""
        self._present = Present(now)
        self._registry.register(self._present)

    def answered(self, method: str, route: str, status: int) -> None:
        """Count an answer.  ``route``: an entry of the route table; names made up by clients must not fill memory."""
        self._requests.answered[method, route, str(status)] += 1

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its media type, in the format that the reader prefers."""
        async with self._one_at_a_time:
            if self._present is not None:
                await self._present.count_waiting()
        return page_of(self._registry, accept)

    async def run(self) -> None:
        """Measure the loop's lag for as long as the daemon runs."""
        while True:
            due = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self._lag.observe(max(0.0, time.monotonic() - due))


class _Requests(Collector):
    """Counts in a dictionary, which costs less per request than a counter of the library."""

    def __init__(self) -> None:
        self.answered: collections.Counter[tuple[str, str, str]] = collections.Counter()

    def collect(self) -> Iterator[Metric]:
        labels = ("method", "route", "status")
        family = CounterMetricFamily("carpool_api_requests", "Answered requests.", labels=labels)
        for request, count in self.answered.items():
            family.add_metric(request, count)
        yield family


class _JournalLag(Collector):
    def __init__(self, behind_s: Callable[[], float]) -> None:
        self._behind_s = behind_s

    def collect(self) -> Iterator[GaugeMetricFamily]:
        about = "How long the oldest write that is not on the disk has waited."
        yield GaugeMetricFamily("carpool_journal_lag_seconds", about, value=self._behind_s())
