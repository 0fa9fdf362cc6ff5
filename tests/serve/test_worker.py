"""A worker in a thread of the test, which speaks as its front would."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import count
from pathlib import Path

import pytest

from carpool.devices import memfd
from carpool.serve.model.native_groups import Groups, copy_us
from carpool.serve.model.seat_device import SeatRefused, TooLarge
from carpool.serve.model.weights_device import Plain, WeightsDemand, WeightsDevice, WeightsMemory
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import Tensor
from carpool.serve.plan.manifest import Manifest
from carpool.serve.prepare.subprocess import PreparedModel
from carpool.serve.wire.channel import Gone, MessageChannel
from carpool.serve.wire.messages import (
    PREFIX,
    Answer,
    Begun,
    Broken,
    Failed,
    Frame,
    FromWorker,
    Infer,
    Leave,
    Load,
    Loaded,
    MakeWay,
    ToWorker,
    Unload,
    heads,
)
from tests.tiers import all_but_first


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch, NoGpu, OnHost, Worker, late, zoo, WIDTH, SEED, alone, asking, held, prepared, request
    import torch

    from carpool.serve.model.torch_device import NoGpu, OnHost
    from carpool.serve.worker import Worker
    from tests.serve import late, zoo
    from tests.serve.hosted import WIDTH
    from tests.serve.working import SEED, alone, asking, held, prepared, request


class Noting:
    """Everything that a worker asks its device for, and what it is told instead of a place."""

    def __init__(self, device: WeightsDevice) -> None:
        self._device = device
        self.log: list[str | WeightsDemand] = []
        self.refusal: Exception | None = None

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        self.log.append(demand)
        if self.refusal:
            raise self.refusal
        return self._device.place(demand)

    def take(self) -> None:
        self.log.append("take")

    def release(self) -> None:
        self.log.append("release")

    def forget(self, key: int) -> None:
        self.log.append(f"forget {key}")
        self._device.forget(key)


class Moving(Plain):
    """Weights that are never where they were."""

    def release(self) -> None:
        for key in list(self._files):
            self.forget(key)


class Front:
    """``models``: those that it can load, by name."""

    def __init__(self, device: WeightsDevice, models: Mapping[str, PreparedModel]) -> None:
        self._models = models
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel = MessageChannel(self.socket, FromWorker)
        self.error: BaseException | None = None
        self._numbers = count(1)
        self._thread = threading.Thread(target=self._work, args=(theirs, device))
        self._thread.start()

    def _work(self, connection: socket.socket, device: WeightsDevice) -> None:
        with connection:
            try:
                Worker(MessageChannel(connection, ToWorker), device).serve()
            except (Broken, Gone, NoGpu) as error:
                self.error = error

    def ask(self, message: Load | Infer, requests: Sequence[Sequence[Tensor]] = (), fd: int | None = None) -> Frame:
        self.channel.send(message, requests, fd)
        frame = self.answer()
        assert frame is not None
        assert frame.message.number == message.number
        return frame

    def answer(self) -> Frame | None:
        while (frame := self.channel.receive()) and isinstance(frame.message, Begun):
            pass
        return frame

    def load(self, name: str, model: PreparedModel | None = None) -> Loaded | Failed:
        """The model of that name, or another one by this name."""
        model = model or self._models[name]
        message = Load(next(self._numbers), name, model.entry, model.model.max_batch)
        return self.ask(message, fd=model.image).message  # type: ignore[no-any-return]

    def infer(self, name: str, *requests: InferRequest, deadline_us: int | None = None) -> Frame:
        inputs = [each.inputs for each in requests]
        return self.ask(Infer(next(self._numbers), name, heads(inputs), deadline_us), inputs)

    def begin(self, name: str, *requests: InferRequest, deadline_us: int | None = None) -> None:
        """Ask as number 70, and do not wait for the answer."""
        inputs = [each.inputs for each in requests]
        self.channel.send(Infer(70, name, heads(inputs), deadline_us), inputs)

    def failed(self, name: str, *requests: InferRequest) -> tuple[str, str]:
        answer = self.infer(name, *requests).message
        assert isinstance(answer, Failed)
        return answer.kind, answer.text

    def close(self) -> None:
        self.socket.close()
        self._thread.join()


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, PreparedModel]]:
    made = {name: prepared(name) for name in ("brain", "residual", "tied", "refusing", "stepping", "trying", "other")}
    yield made
    for model in made.values():
        os.close(model.image)


@pytest.fixture
def device() -> Noting:
    return Noting(Plain())


@pytest.fixture
def front(device: Noting, models: dict[str, PreparedModel]) -> Iterator[Front]:
    made = Front(device, models)
    yield made
    made.close()


@pytest.mark.parametrize("name", ["brain", "residual", "tied", "refusing"])
def test_outputs_are_those_of_the_model_alone(name: str, front: Front, models: dict[str, PreparedModel]) -> None:
    """Cold, warm, and after it has come again."""
    x, groups = zoo.INPUTS[name](), len(models[name].entry.layout.bounds) - 1
    asked = request(name, **{models[name].model.inputs[0].name: x})
    for _ in range(2):
        assert isinstance(front.load(name), Loaded)
        cold, warm = front.infer(name, asked), front.infer(name, asked)
        for frame in (cold, warm):
            assert frame.requests == [alone(name, SEED, x)]
        assert cold.message.cost.copied_bytes > 0
        # The last group may be one that nobody needs: it comes when there is time.
        assert groups - 1 <= cold.message.cost.copied_groups <= groups - warm.message.cost.copied_groups
        front.channel.send(Unload(name))


def test_batches(front: Front) -> None:
    front.load("trying")
    rows = [torch.rand(count, WIDTH) for count in (1, 2, 1)]
    answers = front.infer("trying", *(asking("trying", x) for x in rows)).requests
    whole = alone("trying", SEED, torch.cat(rows), torch.zeros(4, dtype=torch.int64))
    for place in range(2):
        assert b"".join(answer[place].data for answer in answers) == whole[place].data
    assert [answer[0].shape for answer in answers] == [(1, WIDTH), (2, WIDTH), (1, WIDTH)]
    assert [tensor.name for tensor in answers[0]] == ["y", "twice"]


def test_what_a_worker_asks_for(front: Front, device: Noting, models: dict[str, PreparedModel]) -> None:
    entry = models["brain"].entry
    front.load("brain")
    for deadline_us in (None, 123):
        front.infer("brain", request("brain", input=zoo.INPUTS["brain"]()), deadline_us=deadline_us)
    front.channel.send(Unload("brain"))
    front.close()
    loaded, first, *turn, second, taken, again, forgotten = device.log
    assert loaded == "release"
    assert turn == [taken, again] == ["take", "release"]
    assert forgotten == f"forget {entry.number}"
    assert isinstance(first, WeightsDemand)
    assert isinstance(second, WeightsDemand)
    size = entry.layout.bounds[-1] - entry.layout.bounds[0]
    assert first == WeightsDemand(entry.number, entry.device_bytes, copy_us(entry.profile.link, 4, size), 0, None)
    assert second.deadline_us == 123
    assert second.compute_us > 0


@pytest.mark.parametrize(
    ("what", "text"), [(1, "LookupError: no such word"), (2, "SystemExit: enough")], ids=["raises", "exits"]
)
def test_a_model_that_fails(what: int, text: str, front: Front, device: Noting) -> None:
    front.load("trying")
    x = torch.rand(1, WIDTH)
    assert front.failed("trying", asking("trying", x, what)) == ("model_failed", text)
    assert device.log[-1] == "release"
    assert isinstance(front.infer("trying", asking("trying", x)).message, Answer)


def test_a_computation_is_left_between_layers_when_nobody_waits(front: Front, device: Noting) -> None:
    front.load("stepping")
    x = torch.rand(1, WIDTH)
    front.begin("stepping", asking("stepping", x, 1))
    front.channel.send(Leave(69))  # of an earlier one, too late
    front.channel.send(Leave(70))
    answer = front.answer()
    assert answer is not None and answer.message == Failed(70, "left", "no client waits for the answer")
    assert device.log[-1] == "release"
    front.channel.send(Leave(70))
    assert isinstance(front.infer("stepping", asking("stepping", x)).message, Answer)


def test_a_computation_makes_way_between_layers_and_goes_on(front: Front, device: Noting) -> None:
    front.load("residual")
    x = zoo.INPUTS["residual"]()
    device.log.clear()
    front.begin("residual", request("residual", input=x), deadline_us=10**15)
    front.channel.send(MakeWay(70))
    answer = front.answer()
    assert answer is not None and isinstance(answer.message, Answer)
    assert answer.requests == [alone("residual", SEED, x)]
    demands = [each for each in device.log if isinstance(each, WeightsDemand)]
    assert len(demands) == 2 and demands[0] == demands[1] and device.log.count("take") == 2


def test_a_device_that_refuses_a_computation_that_has_made_way(
    front: Front, device: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.load("residual")
    takes = count(1)

    def take() -> None:
        """Ask the computation once more to make way, this time in the model, and refuse it from then on."""
        if next(takes) == 2:
            device.refusal = TooLarge("it has 3 bytes")
            front.channel.send(MakeWay(70))

    monkeypatch.setattr(device, "take", take)
    front.begin("residual", request("residual", input=zoo.INPUTS["residual"]()), deadline_us=10**15)
    front.channel.send(MakeWay(70))
    answer = front.answer()
    assert answer is not None and answer.message == Failed(70, "model_too_large", "it has 3 bytes")


def test_a_computation_is_left_when_the_front_has_gone(front: Front) -> None:
    front.load("stepping")
    front.begin("stepping", asking("stepping", torch.rand(1, WIDTH), 1))
    front.socket.shutdown(socket.SHUT_WR)
    front.close()


def test_a_model_that_spoils_the_device(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be computed in this process any more, so it ends."""

    def check(_: OnHost) -> None:
        raise NoGpu("device-side assert triggered")

    monkeypatch.setattr(OnHost, "check", check)
    front.load("trying")
    front.begin("trying", asking("trying", torch.rand(1, WIDTH), 1))
    assert front.answer() is None
    front.close()
    assert isinstance(front.error, NoGpu)


def test_inputs_that_are_wrong(front: Front) -> None:
    front.load("trying")
    x, what = torch.rand(1, WIDTH), torch.zeros(1, dtype=torch.int64)
    kind, text = front.failed("trying", request("trying", x=x), request("trying", x=x, what=what))
    assert (kind, "different inputs" in text) == ("wrong_input", True)
    words = InferRequest("trying", (Tensor("x", "BYTES", (1,), b"\1\0\0\0a"),), ())
    assert front.failed("trying", words) == ("wrong_input", "input 'x' is of BYTES, which PyTorch has no tensors of")
    assert front.failed("trying", request("trying", x=x)) == ("wrong_input", "forward also needs: what")
    assert front.failed("trying") == ("wrong_input", "a batch without requests")
    assert front.failed("trying", request("trying"))[0] == "wrong_input"
    assert front.failed("gone", request("gone", x=x)) == ("unknown_model", "this worker has no model 'gone'")


PATIENCE_S = 20.0


def threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}


class Counting(Plain):
    """Which threads are new when the turn goes back; one that has ended may be listed a moment longer."""

    known: set[str] | None = None
    new: set[str] | None = None

    def release(self) -> None:
        if self.known is None:
            return
        deadline = time.monotonic() + PATIENCE_S
        while (new := threads() - self.known) and time.monotonic() < deadline:
            time.sleep(0.001)
        self.new = new


def test_nothing_is_copied_without_a_turn(models: dict[str, PreparedModel]) -> None:
    """Somebody else copies, so the worker's own transfer would go on for ever."""
    model = models["trying"]
    fd = memfd.create("shared", model.entry.device_bytes, sealed=True)
    Groups(fd, model.image, model.entry.layout.bounds, model.entry.key).close()  # the header is there
    copying = held(fd)
    device = Counting({model.entry.number: fd})
    front = Front(device, models)
    front.load("trying")
    device.known = threads()
    x = torch.rand(1, WIDTH)
    assert front.failed("trying", request("trying", x=x), asking("trying", x))[0] == "wrong_input"
    assert device.new == set()
    os.close(copying)
    assert isinstance(front.infer("trying", asking("trying", x)).message, Answer)
    front.close()


def test_a_device_that_refuses(front: Front, device: Noting) -> None:
    front.load("trying")
    asked = asking("trying", torch.rand(1, WIDTH))
    device.refusal = TooLarge("it has 3 bytes")
    assert front.failed("trying", asked) == ("model_too_large", "it has 3 bytes")
    device.refusal = SeatRefused("not today")
    assert front.failed("trying", asked) == ("model_failed", "SeatRefused: not today")
    device.refusal = None
    assert isinstance(front.infer("trying", asked).message, Answer)


def test_a_model_that_cannot_be_loaded(front: Front, models: dict[str, PreparedModel]) -> None:
    """The one of that name stays."""
    front.load("trying")
    wrong = models["trying"]._replace(entry=models["brain"].entry)
    entry = wrong.entry
    for factory, text in (("residual", "makes another model"), ("raising", "LookupError: no such architecture")):
        source = type(entry.source)(f"tests.serve.hosted:{factory}")
        answer = front.load("trying", wrong._replace(entry=type(entry)(source, *_rest(entry))))
        assert isinstance(answer, Failed)
        assert text in answer.text
    assert isinstance(front.infer("trying", asking("trying", torch.rand(1, WIDTH))).message, Answer)


def test_one_name_for_another_model(models: dict[str, PreparedModel]) -> None:
    """Nothing is left of them, nor of the worker."""
    before = usage()
    front = Front(Plain(), models)
    x = torch.rand(1, WIDTH)
    for name in ("trying", "other", "other"):
        front.load("it", models[name])
        assert front.infer("it", asking("it", x)).requests == [alone(name, SEED, x, torch.zeros(1, dtype=torch.int64))]
    front.close()
    assert (usage(), front.error) == (before, None)


def test_two_names_for_the_same_weights(front: Front, device: Noting, models: dict[str, PreparedModel]) -> None:
    x = torch.rand(1, WIDTH)
    expected = [alone("other", SEED, x, torch.zeros(1, dtype=torch.int64))]
    for name in ("one", "two"):
        front.load(name, models["other"])
    costs = []
    for name in ("one", "two", "one"):
        frame = front.infer(name, asking(name, x))
        assert frame.requests == expected
        costs.append(frame.message.cost.copied_groups)
    assert costs[1:] == [0, 0]
    front.channel.send(Unload("one"))
    assert front.infer("two", asking("two", x)).message.cost.copied_groups == 0
    assert not [each for each in device.log if str(each).startswith("forget")]


def test_weights_on_a_gpu(models: dict[str, PreparedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is none: they come when an operation follows them, to another address each time."""
    late.stand_in(monkeypatch)
    front = Front(late.Gpu(), models)
    x = torch.rand(3, WIDTH)
    expected = alone("trying", SEED, x, torch.zeros(3, dtype=torch.int64))
    groups = len(models["trying"].entry.layout.bounds) - 1
    front.load("trying")
    for _ in range(3):
        frame = front.infer("trying", asking("trying", x))
        assert frame.requests == [expected]
        assert frame.message.cost.copied_groups == groups
    front.close()


def usage() -> tuple[int, int]:
    """Files of memory that are mapped, and open descriptors."""
    gc.collect()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:" in line}), len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Dirty", "Shared_Dirty")))


@pytest.mark.parametrize(("moving", "rounds"), all_but_first([(False, 300), (True, 100), (False, 1500)], stay=2))
def test_memory_stays_as_it_is(moving: bool, rounds: int, models: dict[str, PreparedModel]) -> None:
    """Two models in turns, whose weights stay, or are in another place each time."""
    front = Front(Moving() if moving else Plain(), models)
    x = torch.rand(256, WIDTH)
    for name in ("trying", "other"):
        front.load(name)

    def switches(count: int) -> None:
        for _ in range(count):
            for name in ("trying", "other"):
                assert isinstance(front.infer(name, asking(name, x)).message, Answer)

    switches(50)
    before, resident = usage(), resident_bytes()
    switches(rounds)
    assert usage() == before
    # A leak of inputs, outputs or weights would be twice as large, and more.
    assert resident_bytes() - resident < rounds * x.nbytes
    front.close()


@pytest.mark.parametrize("data", [PREFIX.pack(3, 0) + b"abc", PREFIX.pack(9, 9), b"\xff" * PREFIX.size])
def test_a_front_that_sends_nonsense(data: bytes, models: dict[str, PreparedModel]) -> None:
    before = usage()
    front = Front(Plain(), models)
    front.load("trying")
    front.socket.sendall(data)
    front.close()
    assert isinstance(front.error, Broken)
    assert usage() == before


def _rest(entry: Manifest) -> list[object]:
    return [getattr(entry, field.name) for field in fields(entry)[1:]]
