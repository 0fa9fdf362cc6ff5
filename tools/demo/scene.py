"""What a scene of the demo measured: one figure, without what it is about and with it."""

from __future__ import annotations

from dataclasses import dataclass

from tools.demo.picture import Band


@dataclass(frozen=True, slots=True)
class Scene:
    """``before`` and ``after``: the figure in words, as in ``12.3 s``.  ``bands``: both runs; ``capacity`` in bytes."""

    name: str
    title: str
    figure: str
    before: str
    after: str
    why: str
    bands: list[Band]
    capacity: int

    def text(self) -> str:
        return f"{self.title}\n  {self.figure}: {self.before} -> {self.after}\n  {self.why}"
