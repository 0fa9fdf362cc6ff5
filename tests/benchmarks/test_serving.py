"""The benchmarks of models on demand run, in their smallest form, through a real daemon and a real endpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks import networks
from benchmarks.networks import WEIGHT_BYTES, Work, bert_base, inception_v3, resnet152
from benchmarks.on_call import Listener, OnCall
from carpool.core.model import MIB


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global services, cycles, load, Served, room, hosted, inception
    from benchmarks import bench_serving as services
    from benchmarks import bench_serving_cycles as cycles
    from benchmarks import bench_serving_load as load
    from benchmarks.through_serve import Served, room
    from benchmarks.workloads import hosted, inception


MODEL = "small"


class Stage(NamedTuple):
    directory: Path
    served: Served
    listener: Listener


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("serving")
    with ExitStack() as stack:
        listener = stack.enter_context(closing(Listener(directory)))
        models = [MODEL, MODEL + hosted.TWIN]
        served = stack.enter_context(Served(directory, models, room(MODEL)))
        yield Stage(directory, served, listener)


@pytest.fixture(scope="module")
def training(stage: Stage) -> Iterator[OnCall]:
    """A job beside the service."""
    with stage.listener.job(stage.served.client) as job:
        yield job


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes", stays="test_each_cycle_is_measured"
)
def test_every_way_of_a_request_is_measured(stage: Stage, training: OnCall) -> None:
    taken: services.Taken = defaultdict(list)
    services.Asking(stage.served, MODEL, training).round(taken)
    with ExitStack() as stack:
        without = services.Without(stage.listener, MODEL, stack, core=services.CORE)
        without.at_once(taken)
        without.started(taken)
    first_group = services.first_group_bytes(stage.served.profiles / f"{MODEL}.json")
    services.time_copies(first_group, taken)
    found = {figure.name: figure for figure in services.figures_of(MODEL, taken, first_group)}
    ratios = [figure.value for figure in found.values() if figure.unit == "ratio"]
    assert len(ratios) == 7
    assert min(ratios) > 0
    starts = [figure.detail for name, figure in found.items() if "first layer" in name]
    assert first_group > 0 and [detail["first_group_mib"] for detail in starts] == [first_group / MIB] * 2


@pytest.mark.nightly(
    "a benchmark or measurement in its smallest form: seconds to minutes", stays="test_each_cycle_is_measured"
)
def test_training_beside_a_service_is_measured(stage: Stage, training: OnCall) -> None:
    service = load.Service(stage.served, MODEL)
    idle, busy = (load.window(training, service, share, 1.0) for share in (0, 0.9))
    assert (idle.share, idle.answered_s) == (0, [])
    assert 0 < busy.share < 1
    assert min(idle.per_s, busy.per_s) > 0
    figure = load.figure_of(MODEL, 0.9, [busy], [idle.per_s])
    assert figure.value == pytest.approx(busy.per_s / idle.per_s / (1 - busy.share))


def test_each_cycle_is_measured(stage: Stage) -> None:
    phases, ready = cycles.Asking(stage.served, MODEL).both(0.1, 0.1)
    assert len(phases) == cycles.LEAST_PHASES
    assert min(map(len, [*phases, ready])) > 0


def test_what_cycles_cost() -> None:
    """A request of 1 s takes 2 s where the model changes."""
    throughput, first = cycles.figures_of(MODEL, 1, [([[2.0, 1.0], [2.0, 1.0]], [1.0, 1.0])])
    assert (throughput.value, first.value) == (pytest.approx(2 / 3), 2)


def test_inception_is_the_published_one() -> None:
    tensors = inception.network().state_dict()
    weights = sum(tensor.nbytes for name, tensor in tensors.items() if not name.endswith("num_batches_tracked"))
    assert weights == sum(work.size for work in networks.inception_v3())


def test_twins_have_other_weights() -> None:
    one, other = (hosted.hosted(name).state_dict() for name in (MODEL, MODEL + hosted.TWIN))
    assert one.keys() == other.keys()
    assert not any(one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize(
    ("model", "layers", "parameters", "normalized", "billions"),
    [
        (resnet152, 464, 60_192_808, 75_712, 11.5),
        (inception_v3, 189, 23_834_568, 17_216, 5.7),
        (bert_base, 139, 109_482_240, 0, 11.2),
    ],
)
def test_counts_are_the_published_ones(
    model: Callable[[], list[Work]], layers: int, parameters: int, normalized: int, billions: float
) -> None:
    """Each channel that a batch norm normalizes has a mean and a variance, which are no parameters."""
    works = model()
    assert len(works) == layers
    assert sum(work.size for work in works) == WEIGHT_BYTES * (parameters + 2 * normalized)
    assert sum(work.operations for work in works) == pytest.approx(billions * 1e9, rel=0.01)
