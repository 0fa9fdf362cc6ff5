"""What users have asked for a job since its submission.  Durable until the job has ended."""

from __future__ import annotations

import msgspec

from carpool.protocol.api import SubmitRequest

#: A time limit, a signal, and how long before the limit it is sent.
LimitWarning = tuple[int | None, int, int]


class JobControl(msgspec.Struct, frozen=True, omit_defaults=True):
    """``held_by``: uid of the user who keeps the job from being placed; None: nobody.

    ``paused_by``: uid of the user who keeps the job off its device; since when (wall clock), and how long its present
    attempt was paused before.
    ``timed_out``: which limit its attempt has reached, so that it is being stopped.  ``warned``: of which limit, and
    with which signal, its attempt has been warned (`JobSpec.warning`), and of which limit of device time.
    ``requeued``: attempts that were stopped, or are to be, so that the next one follows, and the uids of those who
    wanted that.
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
        """How long the present attempt has been paused."""
        since = now_us if self.paused_since_us is None else self.paused_since_us
        return self.paused_us + max(0, now_us - since)

    def moved(self, step_us: int) -> JobControl:
        """The same, on a wall clock that has been set forward by so much."""
        if self.paused_since_us is None:
            return self
        return msgspec.structs.replace(self, paused_since_us=max(0, self.paused_since_us + step_us))

    def in_next_attempt(self, now_us: int) -> JobControl:
        """The clock begins anew; a job that is paused stays so."""
        since = None if self.paused_since_us is None else now_us
        begun = msgspec.structs.replace(self, paused_us=0, paused_since_us=since, timed_out="")
        return msgspec.structs.replace(begun, warned=None, warned_of_device_time=None)


NOTHING_ASKED = JobControl()


def control_at_submission(owner: int, spec: SubmitRequest) -> JobControl:
    """As the submission says."""
    return JobControl(held_by=owner if spec.hold else None)
