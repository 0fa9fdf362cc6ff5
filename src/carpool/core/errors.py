"""Errors that the core raises.  Unusable values are plain ValueErrors; these two are about events and state."""

from __future__ import annotations


class IllegalTransition(Exception):
    """An event that cannot happen in the present state.  The state is as it was before.

    The text tells the recent history of the job, so that one line of a log is enough to understand it.
    """


class InvariantError(Exception):
    """The core contradicts itself: a defect of Carpool.  The text tells the story of the job or lane."""
