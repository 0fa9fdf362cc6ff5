"""A probe that checks every answer of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Never, cast

from carpool.core.model import Micros, Settings
from carpool.core.policies import Key, Policy
from carpool.core.policies.view import DeviceView, JobView, View
from carpool.policy_check.outcome import ContractViolation, require

#: Added to the clock of a blind view: no key may change because the clock shows another time.
ANOTHER_TIME_US: Micros = 1_000_000_000_039
REMEMBERED = 300


class OutOfSight(Mapping[Any, Any]):
    """A part of the view that a key may not depend on; every access raises ContractViolation."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: object) -> Never:
        raise ContractViolation(f"looks at view.{self._name}; a key may depend on the job and on view.settings only")

    __getitem__ = __iter__ = __len__ = __contains__ = get = keys = values = items = _refuse


def blind_view(settings: Settings, now: Micros) -> View:
    """Return a view that shows nothing but the settings, at another time."""
    jobs, lanes, devices, quanta = (OutOfSight(name) for name in ("jobs", "lanes", "devices", "quanta"))
    return View(now + ANOTHER_TIME_US, settings, jobs, lanes, devices, quanta)


def ask(policy: Policy, what: str, *arguments: object) -> Any:
    """Ask the policy one question.  Raises ContractViolation if the policy raises an error instead of answering."""
    try:
        return getattr(policy, what)(*arguments)
    except ContractViolation as error:
        raise ContractViolation(f"{what} {error}{_about(arguments)}") from None
    except Exception as error:
        raise ContractViolation(f"{what} raised {error!r}{_about(arguments)}") from error


def _about(arguments: tuple[object, ...]) -> str:
    return "".join(f"\n  about {argument}" for argument in arguments if not isinstance(argument, View))


@dataclass
class Questions:
    """Keys that all probes of one run asked for."""

    asked: list[tuple[str, Settings, JobView, Key]] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)

    def ask_again(self, kind: type[Policy]) -> None:
        """Ask for all keys again after the run, in reverse order: no answer may depend on what happened in between."""
        for what, settings, job, before in reversed(self.asked):
            after = ask(kind(), what, blind_view(settings, 0), job)
            require(after == before, f"{what} was {before} and at the end {after}{_about((job,))}")


class Probe:
    """A policy that passes every question on to another policy, and checks the answers."""

    def __init__(self, kind: type[Policy], questions: Questions) -> None:
        self._kind = kind
        self._policy = kind()
        self._questions = questions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def admission_key(self, view: View, job: JobView) -> Key:
        """Return the checked key; see `Policy`."""
        return self._key("admission_key", view, job)

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return the checked key; see `Policy`."""
        return self._key("turn_key", view, job)

    def lanes(self, view: View, device: DeviceView) -> int | None:
        """Return the checked number of lanes; see `Policy`."""
        return self._number("lanes", 1, view, device)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Return the checked time, microseconds; see `Policy`."""
        return self._number("switch_after", 0, view, holder, candidate)

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        """Return the victim key, which may depend on the clock and on other jobs: the core asks anew each time."""
        return self._tuple("victim_key", self._answer("victim_key", view, victim, ahead), victim)

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Return the checked time, microseconds; see `Policy`."""
        return self._number("next_change", 0, view, job)

    def _number(self, what: str, least: int, view: View, *about: object) -> int | None:
        answer = self._answer(what, view, *about)
        proper = answer is None or (type(answer) is int and answer >= least)
        require(proper, f"{what} is {answer!r}; it must be None or an integer from {least} on{_about(about)}")
        return cast("int | None", answer)

    def _key(self, what: str, view: View, job: JobView) -> Key:
        key = self._tuple(what, self._answer(what, view, job), job)
        blind = ask(self._policy, what, blind_view(view.settings, view.now), job)
        require(blind == key, f"{what} is {key}, and {blind} about the same job at another time{_about((job,))}")
        if len(self._questions.asked) < REMEMBERED:
            self._questions.asked.append((what, view.settings, job, key))
        return key

    def _tuple(self, what: str, answer: object, job: JobView) -> Key:
        """Return ``answer`` as a key after checking that it is a tuple of integers, as long as other such keys."""
        key = cast(Key, answer)
        proper = isinstance(key, tuple) and all(isinstance(part, int) for part in key)
        require(proper, f"{what} is {key!r}; it must be a tuple of integers{_about((job,))}")
        length = self._questions.lengths.setdefault(what, len(key))
        require(len(key) == length, f"{what} is {key}, but another had {length} parts{_about((job,))}")
        return key

    def _answer(self, what: str, view: View, *about: object) -> object:
        """Return the policy's answer after checking that repeated, and from a fresh policy, it is the same."""
        answer = ask(self._policy, what, view, *about)
        again = ask(self._policy, what, view, *about)
        require(answer == again, f"{what} is {answer!r}, and {again!r} when asked again{_about(about)}")
        other = ask(self._kind(), what, view, *about)
        fresh = f"{what} is {answer!r}, but {other!r} says a new one that was asked nothing before"
        require(answer == other, fresh + _about(about))
        return answer


def probe_class(kind: type[Policy], questions: Questions) -> type[Policy]:
    """Return a class that `register_policy` and the core accept in place of ``kind`` itself."""

    class Probing(Probe):
        def __init__(self) -> None:
            super().__init__(kind, questions)

    return cast(type[Policy], Probing)
