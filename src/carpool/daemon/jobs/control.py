"""Changes that users have requested for a job since its submission; durable until the job has ended."""

from __future__ import annotations

import msgspec

from carpool.protocol.api import SubmitRequest

#: A time limit (µs), a signal, and how long before the limit the signal is sent (µs).
LimitWarning = tuple[int | None, int, int]


class JobControl(msgspec.Struct, frozen=True, omit_defaults=True):
    """``held_by``: uid of the user who keeps the job from being placed; None: the job is not held.

    ``paused_by``: uid of the user who keeps the job off its device.  ``paused_since_us``: wall clock time of that
    pause. ``paused_us``: how long the present attempt was paused before.
    ``timed_out``: which limit the attempt has reached, so that the attempt is being stopped.  ``warned``: of which
    limit, and with which signal, the attempt has been warned (`JobSpec.warning`); ``warned_of_device_time``: the same
    for the limit of device time.
    ``requeued``: attempts that were or are to be stopped so that the next one follows, each with the uid of the user
    who requested that.
    """

    held_by: int | None = None
    paused_by: int | None = None
    paused_since_us: int | None = None
    paused_us: int = 0
    timed_out: str = ""
    warned: LimitWarning | None = None
    requeued: dict[int, int] = {}
    warned_of_device_time: LimitWarning | None = None

    def paused_in_all_us(self, now_us: int) -> int:
        """Return how long the present attempt has been paused in total."""
        since = now_us if self.paused_since_us is None else self.paused_since_us
        return self.paused_us + max(0, now_us - since)

    def moved(self, step_us: int) -> JobControl:
        """Return this record adjusted to a wall clock that has been set forward by ``step_us``."""
        if self.paused_since_us is None:
            return self
        return msgspec.structs.replace(self, paused_since_us=max(0, self.paused_since_us + step_us))

    def in_next_attempt(self, now_us: int) -> JobControl:
        """Return this record for the next attempt: times begin anew, and a paused job stays paused."""
        since = None if self.paused_since_us is None else now_us
        begun = msgspec.structs.replace(self, paused_us=0, paused_since_us=since, timed_out="")
        return msgspec.structs.replace(begun, warned=None, warned_of_device_time=None)


NOTHING_ASKED = JobControl()


def control_at_submission(owner: int, spec: SubmitRequest) -> JobControl:
    """Return the control record that the submission asks for."""
    return JobControl(held_by=owner if spec.hold else None)
