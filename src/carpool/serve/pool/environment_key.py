"""The properties that models must have in common to share worker processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.protocol.models import ModelRequest

#: Variables that shells, terminals and sessions set for themselves: they differ, and mean nothing to a model.
_OF_SESSIONS = frozenset(
    [
        "_",
        "COLUMNS",
        "DISPLAY",
        "LINES",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "SSH_AUTH_SOCK",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "STY",
        "TERM",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "VTE_VERSION",
        "WINDOW",
        "WINDOWID",
        "XDG_SESSION_ID",
    ]
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Where workers run, and their priority among services, the same for all models of a process."""

    python: str
    cwd: str
    priority: int
    variables: tuple[tuple[str, str], ...] = field(repr=False)  # secrets may be among them

    @classmethod
    def of(cls, spec: ModelRequest) -> Environment:
        variables = ((name, value) for name, value in spec.env.items() if name not in _OF_SESSIONS)
        return cls(spec.python, spec.cwd, spec.priority, tuple(sorted(variables)))
