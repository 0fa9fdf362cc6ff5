"""Rules of random histories: what is drawn and cannot happen is left out, and the history goes on.

With `hypothesis.assume` the history would end there, and count for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hypothesis import currently_in_test_context, stateful

Step = Callable[..., None]


class Impossible(Exception):
    """What a rule says cannot happen now."""


def possible(condition: object) -> None:
    """The rest of a rule is for worlds in which this is true."""
    if not condition:
        raise Impossible


def rule(**arguments: Any) -> Callable[[Step], Step]:
    """As Hypothesis's; a test that tells a history step by step hears of what is impossible."""

    def decorated(function: Step) -> Step:
        @functools.wraps(function)
        def step(self: stateful.RuleBasedStateMachine, *given: object, **drawn: object) -> None:
            try:
                function(self, *given, **drawn)
            except Impossible:
                if not currently_in_test_context():
                    raise

        made: Step = stateful.rule(**arguments)(step)
        return made

    return decorated
