"""Which estimator answers for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from carpool.core.model import MIB
from carpool.estimate import auto
from carpool.estimate.auto import Auto
from carpool.estimate.base import CannotEstimate, Estimator, Features, Prediction, Run, Subject
from carpool.estimate.learned.trees import DamagedWeights
from tests.estimate.test_learned import RESNET50


@dataclass
class Fake:
    """Answers with a total, or refuses; remembers what it was asked."""

    name: str
    total: int | None
    features: Features | None = None
    asked: list[Subject] = field(default_factory=list)

    def estimate(self, subject: Subject) -> Prediction:
        self.asked.append(subject)
        if self.total is None:
            raise CannotEstimate(f"no {self.name}", f"mend {self.name}")
        return Prediction(
            self.total // 4, self.total - self.total // 4, self.total // 2, self.total * 2, self.name, "x"
        )


class Makers:
    def __init__(self, **totals: int | None) -> None:
        names = ("history", "faketensor", "learned", "horus")
        self.fakes = {name: Fake(name, totals.get(name)) for name in names}
        self.fakes["faketensor"].features = RESNET50

    def __call__(self, name: str) -> Estimator:
        return self.fakes[name]

    def asked(self) -> list[str]:
        return [name for name, fake in self.fakes.items() if fake.asked]


GPU, HOST = Subject(device="cuda"), Subject()


ALL = {"history": 100, "faketensor": 200, "learned": 300, "horus": 400}


@pytest.mark.parametrize(
    ("totals", "subject", "asked", "total"),
    [
        (ALL, replace(GPU, history=(Run(25, 75),)), ["history"], 100),
        (ALL, GPU, ["faketensor", "learned"], 300),
        ({"learned": 300}, replace(GPU, features=RESNET50), ["learned"], 300),
        (ALL, HOST, ["faketensor"], 200),
        ({"horus": 400}, HOST, ["faketensor", "horus"], 400),
    ],
    ids=[
        *("history comes first", "on a GPU a rehearsal is corrected by what was learned"),
        *("what a rehearsal has seen before is not rehearsed again", "on the host the rehearsal stands as it is"),
        "on the host the sum is not corrected",
    ],
)
def test_whose_estimate_counts(totals: dict[str, int], subject: Subject, asked: list[str], total: int) -> None:
    """The last one that is asked answers."""
    makers = Makers(**totals)
    found = Auto(makers).estimate(subject)
    assert (found.source, found.how) == ("auto", f"{asked[-1]}: x")
    assert (found.low, found.total, found.high) == (total // 2, total, total * 2)
    assert makers.asked() == asked
    assert all(each.features is RESNET50 for each in makers.fakes["learned"].asked)


def test_on_a_gpu_the_sum_alone_is_corrected_and_its_range_is_wide() -> None:
    found = Auto(Makers(horus=4000 * MIB)).estimate(GPU)
    assert found.how == "horus: x; corrected by its error on an A100"
    assert found.low < found.total // 2 and found.high > found.total * 2
    assert found.persistent <= found.total


def test_with_nothing_to_go_by_all_reasons_are_told() -> None:
    with pytest.raises(CannotEstimate) as refusal:
        Auto(Makers()).estimate(GPU)
    assert (refusal.value.text, refusal.value.hint) == ("no faketensor; no horus", "mend horus")


def test_what_was_learned_is_used_by_auto() -> None:
    found = Auto().estimate(replace(GPU, features=RESNET50))
    assert (found.source, found.how.split(":")[0]) == ("auto", "learned")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"low": 1, "middle": "1", "high": 2}', '{"low": 2, "middle": 1, "high": 3}',
     '{"low": 0, "middle": 1, "high": 3}'],
)  # fmt: skip
def test_a_damaged_correction_is_refused_by_name(text: str) -> None:
    with pytest.raises(DamagedWeights, match=r"horus.json is damaged"):
        auto.parse(text)
