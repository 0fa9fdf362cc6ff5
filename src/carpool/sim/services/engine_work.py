"""The computing of an engine: prompts one after the other, then a token of every answer per step.

A prompt that arrives is computed at the end of the present step, as engines do that batch continuously.  Only the
times of first and last tokens count, so steps between them pass as one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from carpool.core.model import Micros
from carpool.sim.model.served_engines import EngineRequest


@dataclass(eq=False, slots=True)
class SimulatedAnswer:
    """An answer: ``left`` tokens are still to come; ``first_us``: when its first token came."""

    request: EngineRequest
    left: int
    first_us: Micros | None = None


class EngineWork:
    """Answers that an engine computes, or is to compute; ``left_us``: until something changes; None: nothing to do."""

    def __init__(self, token_us: Micros, further_us: Micros) -> None:
        self.left_us: Micros | None = None
        self._token_us = token_us
        self._further_us = further_us
        self._prompts: deque[SimulatedAnswer] = deque()
        self._answers: list[SimulatedAnswer] = []
        self._steps = 0  # that `left_us` is for; 0: it is for the first prompt

    def add(self, request: EngineRequest) -> None:
        """Add a request: its prompt is next but for prompts before it."""
        self._prompts.append(SimulatedAnswer(request, max(0, request.tokens - 1)))
        if self.left_us is None:
            self._next()
        elif self._steps > 1:
            self._cut(self.left_us)

    def computed(self, elapsed: Micros, now: Micros) -> list[SimulatedAnswer]:
        """Compute for ``elapsed``, at most what is left; return the answers whose last token came."""
        assert self.left_us is not None and elapsed <= self.left_us
        self.left_us -= elapsed
        if self.left_us:
            return []
        ended = self._tokens(self._steps) if self._steps else self._first_token(now)
        self._next()
        return ended

    @property
    def _step_us(self) -> Micros:
        return self._token_us + (len(self._answers) - 1) * self._further_us

    def _next(self) -> None:
        """Choose what to compute: a prompt, or steps until the first answer ends."""
        self._steps = 0
        if self._prompts:
            self.left_us = self._prompts[0].request.prompt_us
        elif self._answers:
            self._steps = min(answer.left for answer in self._answers)
            self.left_us = self._steps * self._step_us
        else:
            self.left_us = None

    def _cut(self, left_us: Micros) -> None:
        """Let the steps end with the present one: those before it are done."""
        if not self._step_us:
            return
        rest = -(-left_us // self._step_us) - 1
        self._tokens(self._steps - rest - 1)
        self._steps, self.left_us = 1, left_us - rest * self._step_us

    def _tokens(self, count: int) -> list[SimulatedAnswer]:
        for answer in self._answers:
            answer.left -= count
        ended = [answer for answer in self._answers if not answer.left]
        self._answers = [answer for answer in self._answers if answer.left]
        return ended

    def _first_token(self, now: Micros) -> list[SimulatedAnswer]:
        answer = self._prompts.popleft()
        answer.first_us = now if answer.request.tokens else None
        if not answer.left:
            return [answer]
        self._answers.append(answer)
        return []
