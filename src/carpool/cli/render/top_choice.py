"""The choices of a user of `carpool top`, and how keys change them: pure, like the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.protocol.api import JobInfo

#: Orders of jobs within a lane and in the queue; the first one is the default.
SORTS: dict[str, Callable[[JobInfo], tuple[float, int]]] = {
    "number": lambda job: (0, job.id),
    "memory": lambda job: (-(job.persistent_bytes + job.ephemeral_bytes), job.id),
    "turn time": lambda job: (-job.device_us, job.id),
    "age": lambda job: (job.submitted_us, job.id),
}
UP, DOWN, PAGE_UP, PAGE_DOWN = ("\x1b[A", "k"), ("\x1b[B", "j"), ("\x1b[5~",), ("\x1b[6~",)
PAGE = 10
MOVES = {
    **dict.fromkeys(UP, -1),
    **dict.fromkeys(DOWN, 1),
    **dict.fromkeys(PAGE_UP, -PAGE),
    **dict.fromkeys(PAGE_DOWN, PAGE),
}
ESCAPE, ENTER, ERASE = "\x1b", ("\r", "\n"), ("\x7f", "\b")
#: Lines by which the view moves, without selecting.
SCROLLS = {"d": PAGE, "u": -PAGE}
ACTIONS = {"c": "cancel", "p": "pause", "r": "resume"}
#: Separates the parts of the last lines, which are broken there only.
BETWEEN = "   "
FOOTER = BETWEEN.join(
    ("q quit", "? help", "↑ ↓ select", "d u scroll", "s sort", "/ filter", "c cancel", "p pause", "r resume")
)
HELP = (
    ("↑ ↓, k j", "select a job; page up and page down go further"),
    ("d, u", "scroll down and up, without selecting"),
    ("s", f"sort jobs within their lane by {', '.join(SORTS)}"),
    ("/", "show only jobs whose name, command, owner or state contains a text; Enter ends the text, Escape removes it"),
    ("c", "cancel the selected job, after a question"),
    ("p, r", "pause the selected job, so that it leaves its device, or resume it, after a question"),
    ("Ctrl-L", "redraw the screen"),
    ("q, Ctrl-C", "quit"),
)
#: Signs on the screen, and their meaning.
LEGEND = (
    ("PLWO·", "memory of a device: persistent, lanes, weights of models, other programs, free"),
    ("saved", "what jobs keep of their lane between turns, and what is offloaded: not in the bar"),
    (" ▁▄█", "load of a device in the last five minutes (80 s at less than 110 columns); · was not measured"),
    ("▶ »", "the job has the turn of its lane; it is selected"),
)


@dataclass(frozen=True, slots=True)
class TopChoice:
    """``asks``: the action that waits for a yes, and its job; ``said``: the result of the last action.

    ``scroll``: lines by which the view is below where the selected job puts it.
    """

    sort: str = "number"
    text: str = ""
    typing: bool = False
    selected: int | None = None
    asks: str = ""
    helps: bool = False
    said: str = ""
    scroll: int = 0

    def of(self, jobs: Iterable[JobInfo]) -> list[JobInfo]:
        """Return the jobs that match the filter, in the chosen order."""
        wanted = self.text.lower()
        return sorted((job for job in jobs if not wanted or wanted in _words(job)), key=SORTS[self.sort])

    def pressed(self, key: str, shown: Sequence[JobInfo]) -> tuple[TopChoice, str]:
        """Return the choice after a key, and the action to do now, or ""; ``shown``: the jobs from top to bottom."""
        if self.typing:
            return self._typed(key), ""
        if self.asks:
            said = "" if key in ("y", "Y") else "nothing was done"
            return replace(self, asks="", said=said), "" if said else self.asks.partition(" ")[0]
        if self.helps:
            return replace(self, helps=False), ""
        return self._chosen(key, shown), ""

    def _typed(self, key: str) -> TopChoice:
        if key in ENTER:
            return replace(self, typing=False)
        if key == ESCAPE:
            return replace(self, typing=False, text="")
        if key in ERASE:
            return replace(self, text=self.text[:-1])
        return replace(self, text=self.text + key) if key.isprintable() else self

    def _chosen(self, key: str, shown: Sequence[JobInfo]) -> TopChoice:
        if key in MOVES:
            return replace(self, selected=self._moved(MOVES[key], shown), said="", scroll=0)
        if key in SCROLLS:
            return replace(self, scroll=self.scroll + SCROLLS[key], said="")
        if key in ACTIONS:
            asks = [f"{ACTIONS[key]} job {element_id(job)}" for job in shown if job.id == self.selected]
            return replace(self, asks=asks[0], said="") if asks else replace(self, said="select a job first: ↑ ↓")
        names = [*SORTS]
        changes: dict[str, dict[str, Any]] = {
            "s": {"sort": names[(names.index(self.sort) + 1) % len(names)], "said": ""},
            "/": {"typing": True, "said": ""},
            "?": {"helps": True},
            "h": {"helps": True},
            ESCAPE: {"text": "", "selected": None, "said": "", "scroll": 0},
        }
        return replace(self, **changes.get(key, {}))

    def _moved(self, by: int, shown: Sequence[JobInfo]) -> int | None:
        numbers = [job.id for job in shown]
        if not numbers:
            return None
        if self.selected not in numbers:
            return numbers[0 if by > 0 else -1]
        return numbers[max(0, min(len(numbers) - 1, numbers.index(self.selected) + by))]

    def footer(self) -> str:
        """The last line of the screen, or lines where it is narrow."""
        if self.typing:
            return f"filter: {self.text}_   (Enter: keep, Escape: all jobs)"
        if self.asks:
            return f"{self.asks}? y: yes, any other key: no"
        chosen = [f"sorted by {self.sort}"] if self.sort != "number" else []
        chosen += [f"filter: {self.text}"] if self.text else []
        return BETWEEN.join([self.said or FOOTER, *chosen])


def _words(job: JobInfo) -> str:
    return f"{formatting.title(job)} {formatting.owner(job.owner)} {formatting.state(job)}".lower()
