"""Policies that break the contract, each in one way: the suite has to catch them all."""

from __future__ import annotations

import itertools
import random
from typing import Any, ClassVar

from carpool.core.model import Settings
from carpool.core.policies import BasePolicy, Key
from carpool.core.policies.view import DeviceView, JobView, View


class FloatKey(BasePolicy):
    def admission_key(self, view: View, job: JobView) -> Key:
        return (job.attained_us / 2,)  # type: ignore[return-value]


class ListKey(BasePolicy):
    def turn_key(self, view: View, job: JobView) -> Key:
        return [job.arrival]  # type: ignore[return-value]


class KeyOfTwoLengths(BasePolicy):
    def turn_key(self, view: View, job: JobView) -> Key:
        return (job.arrival,) if job.weight == 100 else (job.arrival, job.weight)


class ClockKey(BasePolicy):
    """Aging done wrong: the core does not ask again just because time passes."""

    def admission_key(self, view: View, job: JobView) -> Key:
        return (-(view.now - job.submitted_us) * job.weight,)


class NosyKey(BasePolicy):
    def turn_key(self, view: View, job: JobView) -> Key:
        return (sum(other.owner == job.owner for other in view.jobs.values()),)


class RandomKey(BasePolicy):
    def turn_key(self, view: View, job: JobView) -> Key:
        return (random.randrange(10**9),)


class RememberingKey(BasePolicy):
    """Answers depend on whom it was asked about before."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def turn_key(self, view: View, job: JobView) -> Key:
        return (self._seen.setdefault(job.id, len(self._seen)),)


class HistoryOfTheProcess(BasePolicy):
    """The same, where neither a new object nor asking twice helps: how many others were asked about so far?"""

    seen: ClassVar[set[int]] = set()

    def turn_key(self, view: View, job: JobView) -> Key:
        self.seen.add(job.id)
        return (len(self.seen - {job.id}),)


class RaisingKey(BasePolicy):
    def admission_key(self, view: View, job: JobView) -> Key:
        assert job.remaining_us is not None, "surely somebody knows"
        return (job.remaining_us,)


class NegativeSwitch(BasePolicy):
    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> int | None:
        return candidate.virtual_us - holder.virtual_us


class FloatSwitch(BasePolicy):
    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> int | None:
        return holder.attained_us / 2  # type: ignore[return-value]


class MoodySwitch(BasePolicy):
    moods = itertools.cycle([0, 1000])

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> int | None:
        return next(self.moods)


class VictimByFloat(BasePolicy):
    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        return (victim.reload_us / (1 + (ahead or 0)),)  # type: ignore[return-value]


class VictimOfTwoLengths(BasePolicy):
    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        return (0,) if ahead is None else (1, ahead)


class VictimWithoutQueue(BasePolicy):
    """Who does not want to compute has nobody ahead."""

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        return (-ahead,)  # type: ignore[operator]


class VictimByLot(BasePolicy):
    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        return (random.randrange(10**9),)


class VictimRemembered(BasePolicy):
    """Whoever was asked about last."""

    def __init__(self) -> None:
        self._asked = 0

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        before, self._asked = self._asked, victim.id
        return (before,)


class TextChange(BasePolicy):
    def next_change(self, view: View, job: JobView) -> int | None:
        return "1s"  # type: ignore[return-value]


class NoLanes(BasePolicy):
    def lanes(self, view: View, device: DeviceView) -> int | None:
        return 0


class RestlessOnDevices(BasePolicy):
    """Looks at the order again every microsecond."""

    preemptive = True

    def next_change(self, view: View, job: JobView) -> int | None:
        return 1


class FloatQuantum(BasePolicy):
    quantum_us = 0.5  # type: ignore[assignment]


class NegativeQuantum(BasePolicy):
    quantum_us = -1


class NotBoolean(BasePolicy):
    backfill = 1  # type: ignore[assignment]


class SettingsAsList(BasePolicy):
    settings = ["patience_us"]  # type: ignore[assignment]  # noqa: RUF012


class SettingOfTheCore(BasePolicy):
    settings = ("quantum_us",)


class RefusesItsSetting(BasePolicy):
    settings = ("patience_us",)

    def check(self, settings: Settings) -> None:
        if settings.extra:
            raise ValueError("never")


class RefusesDefaults(BasePolicy):
    settings = ("patience_us",)

    def check(self, settings: Settings) -> None:
        if "patience_us" not in settings.extra:
            raise ValueError("patience_us is missing")


class CheckFails(BasePolicy):
    settings = ("patience_us",)

    def check(self, settings: Settings) -> None:
        settings.extra["patience_us"].bit_length()


class TakesEverything(BasePolicy):
    class Anything(tuple[Any, ...]):
        def __iter__(self) -> Any:
            return iter(("patience_us", "a_setting_of_no_policy"))

    settings = Anything()


EXPECTED: dict[type[BasePolicy], str] = {
    FloatKey: "admission_key is .*must be a tuple of integers",
    ListKey: "turn_key is .*must be a tuple of integers",
    KeyOfTwoLengths: "another had [12] parts",
    ClockKey: "about the same job at another time",
    NosyKey: "looks at view.jobs",
    RandomKey: "when asked again",
    RememberingKey: "a new one that was asked nothing before",
    HistoryOfTheProcess: r"turn_key was \(\d+,\) and at the end \(19,\)",
    RaisingKey: "raised AssertionError",
    NegativeSwitch: "switch_after is -.*integer from 0 on",
    FloatSwitch: "switch_after is .*integer from 0 on",
    MoodySwitch: "switch_after is 0, and 1000 when asked again",
    VictimByFloat: "victim_key is .*must be a tuple of integers",
    VictimOfTwoLengths: "victim_key is .*but another had [12] parts",
    VictimWithoutQueue: "victim_key raised TypeError",
    VictimByLot: "victim_key is .*when asked again",
    VictimRemembered: "victim_key is .*when asked again",
    TextChange: "next_change is '1s'",
    NoLanes: "lanes is 0; it must be None or an integer from 1 on",
    RestlessOnDevices: "whole devices: .*change its mind without end",
    FloatQuantum: "quantum_us is 0.5; it must be an integer from 0 on",
    NegativeQuantum: "quantum_us is -1; it must be an integer from 0 on",
    NotBoolean: "backfill is 1; it must be True or False",
    SettingsAsList: "settings is .*must be a tuple of names",
    SettingOfTheCore: "have the names of the core's: quantum_us",
    RefusesItsSetting: "names the setting patience_us, and refuses every value",
    RefusesDefaults: "refuses its own defaults: patience_us is missing",
    CheckFails: "check raised KeyError",
    TakesEverything: "takes a setting that it does not name",
}
