"""Guards around users' policies: where one is wrong, jobs are served first come, first served; the fault is noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from carpool.core.model import Micros, Settings
from carpool.core.policies.base import BasePolicy, Key, Policy
from carpool.core.policies.registry import P
from carpool.core.policies.view import DeviceView, JobView, View

T = TypeVar("T")
#: Calls what it is given, and raises PolicyTimeout if that takes too long.
CallLimit = Callable[[Callable[[], Any]], Any]


class PolicyTimeout(BaseException):
    """A call of a policy has been interrupted.  No `Exception`, so that a policy's own handlers do not keep it."""


def unlimited(ask: Callable[[], Any]) -> Any:
    """Let a policy take its time, as in the simulator."""
    return ask()


class Watched(Generic[P]):
    """Asks a user's policy, of whichever kind, and checks its answers.

    ``fault`` is the first thing that went wrong, for people.  A policy that does not answer in time is not asked again.
    """

    def __init__(self, policy: P, limit: CallLimit) -> None:
        self._policy = policy
        self._limit = limit
        self._asked = 0  # questions in the present event
        self._gives_up_at: int | None = None  # the question that it does not answer in time; 0: it is asked none
        self._new_timeout: int | None = None
        self.fault: str | None = None
        self.name: str = policy.name
        self.settings: tuple[str, ...] = tuple(policy.settings)

    def check(self, settings: Settings) -> None:
        """Let the policy check its settings.  Raises ValueError."""
        own = getattr(self._policy, "check", None)
        try:
            if own is not None:
                self._limit(lambda: own(settings))
        except ValueError:
            raise
        except (Exception, SystemExit, PolicyTimeout) as error:
            raise ValueError(f"{self.name}: check failed: {type(error).__name__}: {error}") from error

    def begin_event(self) -> None:
        """Count questions anew; a timeout that has not been taken came outside of events."""
        self._asked = 0
        if self._new_timeout is not None:
            self._new_timeout = 0

    def time_out_at(self, question: int) -> None:
        """Let the question time out in a replay, as `PolicyTimedOut` says."""
        self._gives_up_at = question

    def take_timeout(self) -> int | None:
        """Return the question that has not been answered in time, once; None: none since the last call."""
        timeout, self._new_timeout = self._new_timeout, None
        return timeout

    def _checked(self, ask: Callable[[], T], fits: Callable[[object], bool], what: str, otherwise: T) -> T:
        self._asked += 1
        if self._gives_up_at is not None and self._asked >= self._gives_up_at:
            self._gives_up_at = 0
            return otherwise
        try:
            answer: T = self._limit(ask)
        except PolicyTimeout as timeout:
            self._note(f"{what} {timeout}; it is not used again until it is chosen anew")
            self._gives_up_at, self._new_timeout = 0, self._asked
            return otherwise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a stranger's code does, the core goes on
            self._note(f"{what} failed: {type(error).__name__}: {error}")
            return otherwise
        if fits(answer):
            return answer
        self._note(f"{what} returned {answer!r}, not {_WANTED[fits]}")
        return otherwise

    def _note(self, fault: str) -> None:
        if self.fault is None:
            self.fault = fault


class Guarded(Watched[Policy]):
    """Asks ``policy``, checks its answers, and answers as `BasePolicy` would where that is an error or nonsense."""

    def __init__(self, policy: Policy, limit: CallLimit = unlimited) -> None:
        super().__init__(policy, limit)
        self._fallback = BasePolicy()
        self.backfill = bool(policy.backfill)
        self.by_user = bool(policy.by_user)
        self.preemptive = bool(policy.preemptive)
        self.requeue = bool(policy.requeue)
        self.quantum_us = policy.quantum_us if _is_quantum(policy.quantum_us) else self._fallback.quantum_us

    def lanes(self, view: View, device: DeviceView) -> int | None:
        own = self._fallback.lanes(view, device)
        return self._checked(lambda: self._policy.lanes(view, device), _is_count, "lanes", own)

    def admission_key(self, view: View, job: JobView) -> Key:
        own = self._fallback.admission_key(view, job)
        return self._checked(lambda: self._policy.admission_key(view, job), is_key, "admission_key", own)

    def turn_key(self, view: View, job: JobView) -> Key:
        own = self._fallback.admission_key(view, job)
        return self._checked(lambda: self._policy.turn_key(view, job), is_key, "turn_key", own)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        own = self._fallback.switch_after(view, holder, candidate)
        return self._checked(lambda: self._policy.switch_after(view, holder, candidate), _is_time, "switch_after", own)

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        own = self._fallback.victim_key(view, victim, ahead)
        return self._checked(lambda: self._policy.victim_key(view, victim, ahead), is_key, "victim_key", own)

    def next_change(self, view: View, job: JobView) -> Micros | None:
        return self._checked(lambda: self._policy.next_change(view, job), _is_time, "next_change", None)


def is_key(answer: object) -> bool:
    """Whether a policy's answer can be compared with other keys: a tuple of integers."""
    return isinstance(answer, tuple) and all(isinstance(part, int) for part in answer)


def _is_quantum(answer: object) -> bool:
    return isinstance(answer, int) and answer >= 0


def _is_time(answer: object) -> bool:
    return answer is None or (isinstance(answer, int) and answer >= 0)


def _is_count(answer: object) -> bool:
    return answer is None or (isinstance(answer, int) and answer >= 1)


_WANTED: dict[Callable[[object], bool], str] = {
    is_key: "a tuple of whole numbers",
    _is_time: "a whole number of microseconds from 0 on, or None",
    _is_count: "a whole number from 1 on, or None",
}
