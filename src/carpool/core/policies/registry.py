"""Policies by name: Carpool's own, and those that a driver has registered, each of which has a guard around it.

Where a user's policy is wrong, jobs are served first come, first served; the fault is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from carpool.core.model import Micros, Settings
from carpool.core.policies.base import BasePolicy, Key, Policy
from carpool.core.policies.view import DeviceView, JobView, View
from carpool.core.spelling import did_you_mean

T = TypeVar("T")
#: Calls what it is given, and raises PolicyTimeout if that takes too long.
CallLimit = Callable[[Callable[[], Any]], Any]


class Named(Protocol):
    """The attributes that policies of every sort have."""

    name: str
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]


P = TypeVar("P", bound=Named)


class Registry(Generic[P]):
    """``words``, for people: one policy of the sort, several, and what introduces the names of those there are.

    ``base``: all that it has, a policy must have.  ``guard`` wraps a user's policy so that it can do no harm, given
    what limits each call of it (`CallLimit`).
    """

    def __init__(
        self, words: tuple[str, str, str], own: Iterable[type[P]], base: type[P], guard: Callable[..., P]
    ) -> None:
        self._one, self._many, self._known = words
        self._own = {kind.name: kind for kind in own}
        self._base = base
        self._guard = guard
        self._registered: dict[str, tuple[type[P], bool]] = {}  # and whether it is to be guarded
        self._limits: tuple[CallLimit, ...] = ()

    def available(self) -> tuple[str, ...]:
        """Return the names of Carpool's own policies: first those for every day, then those of papers, to compare."""
        return tuple(self._own)

    def load(self, name: str) -> P:
        """Make the policy of a name.  Raises ValueError that names the known ones.

        Files and packages are the business of `carpool.plugins`.
        """
        if name in self._own:
            return self._own[name]()
        if name not in self._registered:
            raise self.unknown(name, sorted(self._registered))
        kind, guarded = self._registered[name]
        return self._guard(kind(), *self._limits) if guarded else kind()

    def limit_calls(self, limit: CallLimit) -> None:
        """Call users' policies that are loaded from now on through ``limit``."""
        self._limits = (limit,)

    def unknown(self, name: str, others: Iterable[str]) -> ValueError:
        """Make the error for an unknown name.  ``others``: the names that would do beside Carpool's own."""
        known = (*self.available(), *others)
        listed = f"{self._known}: {', '.join(known)}; or one of yours, as path.py:Class"
        return ValueError(f"unknown {self._one} {name!r}; {did_you_mean(name, known)}{listed}")

    def is_registered(self, name: str) -> bool:
        """Whether a driver has registered a policy under a name."""
        return name in self._registered

    def kind(self, name: str) -> type[P]:
        """Return the class behind a name that `load` knows.  Raises KeyError."""
        return self._own.get(name) or self._registered[name][0]

    def register(self, name: str, kind: type[P], *, guarded: bool = True) -> None:
        """Make a policy known under a name; not ``guarded``: its errors are the caller's business.

        Raises ValueError for a name that Carpool uses itself, and for a class that is not a policy of this sort.
        """
        if name in self._own:
            raise ValueError(f"{name!r} is one of Carpool's own {self._many}; give yours another name")
        try:
            fault = self._fault(kind())
        except (Exception, SystemExit) as error:
            raise self._no_policy(name, f"making one fails: {type(error).__name__}: {error}") from error
        if fault is not None:
            raise self._no_policy(name, fault)
        self._registered[name] = (kind, guarded)

    @contextmanager
    def kept_on_error(self) -> Iterator[None]:
        """Restore the registered policies if an error leaves the block."""
        before = dict(self._registered)
        try:
            yield
        except BaseException:
            self._registered = before
            raise

    def _no_policy(self, name: str, why: str) -> ValueError:
        return ValueError(f"{name!r} is not a {self._one}: {why}")

    def _fault(self, policy: P) -> str | None:
        parts = [part for part in vars(self._base) if not part.startswith("_")]
        missing = [part for part in parts if not hasattr(policy, part)]
        if missing:
            return f"it has no {', '.join(missing)}; derive it from {self._base.__name__}"
        if not _are_names(policy.settings):
            return f"its settings are {policy.settings!r}, not a tuple of names"
        return None


def _are_names(answer: object) -> bool:
    return isinstance(answer, Iterable) and all(isinstance(each, str) for each in answer)


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
        """Return the policy's checked answer."""
        own = self._fallback.lanes(view, device)
        return self._checked(lambda: self._policy.lanes(view, device), _is_count, "lanes", own)

    def admission_key(self, view: View, job: JobView) -> Key:
        """Return the policy's checked answer."""
        own = self._fallback.admission_key(view, job)
        return self._checked(lambda: self._policy.admission_key(view, job), is_key, "admission_key", own)

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return the policy's checked answer."""
        own = self._fallback.admission_key(view, job)
        return self._checked(lambda: self._policy.turn_key(view, job), is_key, "turn_key", own)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Return the policy's checked answer."""
        own = self._fallback.switch_after(view, holder, candidate)
        return self._checked(lambda: self._policy.switch_after(view, holder, candidate), _is_time, "switch_after", own)

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        """Return the policy's checked answer."""
        own = self._fallback.victim_key(view, victim, ahead)
        return self._checked(lambda: self._policy.victim_key(view, victim, ahead), is_key, "victim_key", own)

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Return the policy's checked answer; None where it is nonsense."""
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
