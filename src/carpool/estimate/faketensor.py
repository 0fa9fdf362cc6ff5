"""A rehearsal: the job's first eight iterations over fake tensors, through a mirror of libcarpool's allocator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.estimate.base import CannotEstimate, Features, Prediction, Subject, need_torch
from carpool.estimate.rehearsal.script import OTHERWISE, player

if TYPE_CHECKING:
    from carpool.estimate.rehearsal.rehearsal import Rehearsal

LIMIT_S = 60.0
#: A script is rehearsed once in a process, for all estimators: a second rehearsal might take another path.
_REHEARSED: dict[Subject, Rehearsal] = {}
_RECURRENT = {"LSTM", "GRU", "RNN"}  # oneDNN has kernels for these that fake tensors do not take
#: The range about a full rehearsal: `docs/estimates.md` has the errors measured.
_RANGE_PPM = 30_000
_CUT_SHORT_PPM = 150_000  # fewer than all steps have been seen


class FakeTensor:
    """The estimator ``faketensor``: rehearses once; `features` has the facts seen, for the other estimators."""

    name = "faketensor"

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self.features: Features | None = None

    def estimate(self, subject: Subject) -> Prediction:
        """Rehearse the subject, once in a process.  Raises CannotEstimate."""
        play = None if subject.model else player(subject.command, subject.directory)
        need_torch()
        from carpool.estimate.rehearsal.factory import play_model
        from carpool.estimate.rehearsal.rehearsal import rehearse
        from carpool.estimate.rehearsal.watch import STEPS

        key = replace(subject, features=None, history=())
        if key not in _REHEARSED:
            _REHEARSED[key] = rehearse(play or play_model(subject), self._limit_s)
        seen = _REHEARSED[key]
        if seen.features.parameter_bytes:
            self.features = seen.features
        if not seen.steps:
            raise _failed(seen.error, bool(subject.model))
        full, total = seen.steps >= STEPS, seen.persistent + seen.ephemeral
        room = total * (_RANGE_PPM if full else _CUT_SHORT_PPM) // 1_000_000
        high = total + room
        how = f"{seen.steps} iteration{'s' if seen.steps > 1 else ''} rehearsed without data"
        if seen.error is not None:
            how += f"; then: {one_line(seen.error)}"
        if _RECURRENT & set(seen.features.layers):
            how += "; recurrent layers have buffers that it does not see"
            high = 3 * total
        return Prediction(seen.persistent, seen.ephemeral, total - room, high, self.name, how)


def _failed(error: BaseException | None, is_model: bool) -> CannotEstimate:
    if error is None:
        return CannotEstimate("the script came to its end without an optimizer step", "is it a training script?")
    if isinstance(error, CannotEstimate):
        return error
    if isinstance(error, SystemExit):
        text = f"the script left before its first optimizer step: {error.code}"
        return CannotEstimate(text, "run it by hand: are its arguments right?")
    kind = type(error).__name__
    if isinstance(error, SyntaxError | ImportError | FileNotFoundError):
        return CannotEstimate(f"the script fails: {kind}: {one_line(error)}", "run it by hand, and fix the error")
    hint = "make it run on ordinary tensors first" if is_model else OTHERWISE
    return CannotEstimate(f"it cannot be rehearsed without data: {kind}: {one_line(error)}", hint)


def one_line(error: BaseException) -> str:
    """Return the first line of an error's text, 200 characters at most; the name of its class if there is no text."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
