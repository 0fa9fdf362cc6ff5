"""The names of events and commands about turns, for those who treat events by their kind without folding them."""

from __future__ import annotations

from carpool.core import commands, events

#: What the core asks of a job that has a turn, or refuses to one that wants a turn.
ASKED = frozenset(
    kind.__name__ for kind in (commands.DenyTurn, commands.PauseTurn, commands.RequestYield, commands.WithdrawYield)
)
#: Kinds of which there are some with each turn.
FREQUENT = frozenset(
    kind.__name__
    for kind in (
        *(events.TurnWanted, events.TurnReleased, events.TurnPassed, events.TurnPaused, commands.GrantTurn),
        *(commands.PauseTurn, commands.NameSuccessor, commands.RequestYield, commands.WithdrawYield),
    )
)
