"""What users have asked for a job since its submission.  Durable until the job has ended."""

from __future__ import annotations

import msgspec

from carpool.protocol.api import SubmitRequest


class JobControl(msgspec.Struct, frozen=True, omit_defaults=True):
    """``held_by``: uid of the user who keeps the job from being placed; None: nobody.

    ``timed_out``: which limit its attempt has reached, so that it is being stopped.  ``requeued``: attempts that were
    stopped, or are to be, so that the next one follows, and the uids of those who wanted that.
    """

    held_by: int | None = None
    timed_out: str = ""
    requeued: dict[int, int] = {}


NOTHING_ASKED = JobControl()


def control_at_submission(owner: int, spec: SubmitRequest) -> JobControl:
    """As the submission says."""
    return JobControl(held_by=owner if spec.hold else None)
