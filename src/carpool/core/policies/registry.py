"""Policies of one sort by name: those that come with Carpool, and those that a driver has registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from carpool.core.spelling import did_you_mean


class Named(Protocol):
    """The attributes that policies of every sort have."""

    name: str
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]


P = TypeVar("P", bound=Named)


class Registry(Generic[P]):
    """``words``, for people: one policy of the sort, several, and what introduces the names of those there are.

    ``base``: all that it has, a policy must have.  ``guard`` wraps a user's policy so that it can do no harm, given
    what limits each call of it (`carpool.core.policies.guard`).
    """

    def __init__(
        self, words: tuple[str, str, str], own: Iterable[type[P]], base: type[P], guard: Callable[..., P]
    ) -> None:
        self._one, self._many, self._known = words
        self._own = {kind.name: kind for kind in own}
        self._base = base
        self._guard = guard
        self._registered: dict[str, tuple[type[P], bool]] = {}  # and whether it is to be guarded
        self._limits: tuple[Callable[[Callable[[], Any]], Any], ...] = ()

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

    def limit_calls(self, limit: Callable[[Callable[[], Any]], Any]) -> None:
        """Call users' policies that are loaded from now on through ``limit`` (`CallLimit`)."""
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

        Raises ValueError for a name that Carpool uses itself, and for a class that is no policy of this sort.
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
