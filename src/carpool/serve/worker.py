"""``python -P -m carpool.serve.worker``: computes the front's requests, one batch after the other.

The front's address and a token are in the environment (`serve.wire.channel`).  A worker keeps the structure of its
models; their weights are on the device, and outlive it.  It ends when the front has gone.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import cast

import torch

from carpool.serve.model import torch_device
from carpool.serve.model.bound_model import BoundModel
from carpool.serve.model.module_inputs import Signature
from carpool.serve.model.native_groups import copy_us
from carpool.serve.model.seat_device import SeatRefused, TooLarge
from carpool.serve.model.skeleton import Unusable
from carpool.serve.model.torch_device import NoGpu, watched
from carpool.serve.model.torch_tensors import joined, named, split
from carpool.serve.model.weights_device import WeightsDemand, WeightsDevice, of_process
from carpool.serve.oip.errors import (
    LONGEST,
    CodeChanged,
    ModelFailed,
    ModelTooLarge,
    ServeError,
    UnknownModel,
    WrongInput,
    text_of,
)
from carpool.serve.oip.values import Tensor
from carpool.serve.wire.channel import Gone, MessageChannel, NoFront, connect
from carpool.serve.wire.messages import (
    Answer,
    Begun,
    Broken,
    Cost,
    Failed,
    Frame,
    Hello,
    Infer,
    Kind,
    Leave,
    Load,
    Loaded,
    MakeWay,
    TooMuch,
    ToWorker,
    Unload,
    heads,
)


class Hosted:
    """A model of this worker.  ``compute_us``: computing time of its last batch, 0: none yet."""

    def __init__(self, load: Load, image: int) -> None:
        """Build the model.  Raises what `BoundModel` raises; the descriptor stays the caller's."""
        self.entry = load.entry
        self.max_batch = load.max_batch
        self.model = BoundModel(load.entry, image)
        self.signature = Signature(self.model.module)
        self.compute_us = 0


class NobodyWaits(BaseException):
    """Leaves a computation for which no client waits.

    A BaseException: code of models does not catch it as an error.
    """


class Worker:
    """The models of one process, and the loop that computes with them."""

    def __init__(self, channel: MessageChannel, device: WeightsDevice) -> None:
        self._channel = channel
        self._device = device
        self._hosted: dict[str, Hosted] = {}
        self._came: deque[Frame] = deque()  # arrived during a computation
        self._away_ns = 0  # time of the latest computation without the turn

    def serve(self) -> None:
        """Handle messages until the front has gone.  Raises Broken, Gone, NoGpu."""
        try:
            while frame := self._came.popleft() if self._came else self._channel.receive():
                self._handle(frame)
        finally:
            for name in list(self._hosted):
                self._unload(name)

    def _look(self, hosted: Hosted, infer: Infer) -> None:
        """Read messages during a computation, and make way if asked to.

        Raises NobodyWaits if the answer is no longer wanted, and what `_place` raises.
        """
        makes_way = False
        while self._channel.has_news():
            frame = self._channel.receive()
            if frame is None or frame.message == Leave(infer.number):
                raise NobodyWaits
            if isinstance(frame.message, MakeWay):
                makes_way = makes_way or frame.message.number == infer.number
            else:
                self._came.append(frame)
        if makes_way and hosted.model.device.type == "cpu":  # on a GPU the weights may move meanwhile
            self._make_way(hosted, infer)

    def _make_way(self, hosted: Hosted, infer: Infer) -> None:
        """Give the turn to the worker that is first by now, and continue this computation with the next turn.

        The module's intermediate results lie in the lane, which keeps them.
        """
        begin = time.perf_counter_ns()
        hosted.model.stop()
        self._place(hosted, infer.deadline_us)
        hosted.model.groups.load()
        self._device.take()
        self._away_ns += time.perf_counter_ns() - begin

    def _handle(self, frame: Frame) -> None:
        message = frame.message
        match message:
            case Load():
                assert frame.fd is not None
                self._load(message, frame.fd)
            case Unload():
                self._unload(message.name)
            case Infer():
                self._infer(message, frame.requests)
            case Leave() | MakeWay():
                pass  # the computation was answered before that came

    # Loading and unloading models

    def _load(self, load: Load, image: int) -> None:
        try:
            hosted = Hosted(load, image)
        except CodeChanged as error:
            self._channel.send(Failed(load.number, "code_changed", str(error)))
            return
        except Unusable as error:
            self._channel.send(Failed(load.number, "model_failed", str(error)))
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the factory may raise anything
            self._channel.send(Failed(load.number, "model_failed", text_of(error)))
            return
        finally:
            os.close(image)
            self._device.release()
        before = self._hosted.pop(load.name, None)
        self._hosted[load.name] = hosted
        self._let_go(before)
        self._channel.send(Loaded(load.number))

    def _unload(self, name: str) -> None:
        self._let_go(self._hosted.pop(name, None))

    def _let_go(self, hosted: Hosted | None) -> None:
        if hosted is None:
            return
        hosted.model.close()
        number = hosted.entry.number
        if not any(other.entry.number == number for other in self._hosted.values()):
            self._device.forget(number)

    # Requests

    def _infer(self, infer: Infer, requests: list[list[Tensor]]) -> None:
        try:
            answers, cost = self._computed(infer, requests)
            self._channel.send(Answer(infer.number, heads(answers), cost), answers)
        except NobodyWaits:
            self._channel.send(Failed(infer.number, "left", "no client waits for the answer"))
        except ServeError as error:
            self._channel.send(Failed(infer.number, cast(Kind, error.kind), str(error)[:LONGEST]))
        except (TooMuch, SeatRefused, OSError) as error:
            self._channel.send(Failed(infer.number, "model_failed", text_of(error)))

    def _computed(self, infer: Infer, requests: list[list[Tensor]]) -> tuple[list[list[Tensor]], Cost]:
        """Compute a batch.  Raises NobodyWaits, ServeError, SeatRefused, OSError, TooMuch."""
        hosted = self._hosted.get(infer.model)
        if hosted is None:
            raise UnknownModel(f"this worker has no model {infer.model!r}")
        try:
            self._place(hosted, infer.deadline_us)
            return self._answers(hosted, infer, requests)
        except TooLarge as error:
            raise ModelTooLarge(str(error)) from None
        finally:
            hosted.model.stop()
            self._device.release()

    def _place(self, hosted: Hosted, deadline_us: int | None) -> None:
        """Wait for memory for the weights, and bind the model to it.  Raises TooLarge, SeatRefused, OSError."""
        entry, bounds = hosted.entry, hosted.entry.layout.bounds
        reload_us = copy_us(entry.profile.link, len(bounds) - 1, bounds[-1] - bounds[0])
        demand = WeightsDemand(entry.number, entry.device_bytes, reload_us, hosted.compute_us, deadline_us)
        hosted.model.bind(self._device.place(demand))

    def _answers(self, hosted: Hosted, infer: Infer, requests: list[list[Tensor]]) -> tuple[list[list[Tensor]], Cost]:
        """Return the outputs, off the device.  Raises NobodyWaits, ServeError, SeatRefused, OSError, NoGpu."""
        groups = hosted.model.groups
        there, waited_us = groups.there, groups.waits.waited_us
        groups.load()  # copying begins while this process may still wait for its turn
        self._device.take()
        self._channel.send(Begun(infer.number))
        self._look(hosted, infer)
        answers, spent_us = self._called(hosted, infer, requests)
        # All threads may have waited at once.
        waited_us = (groups.waits.waited_us - waited_us) // torch.get_num_threads()
        hosted.compute_us = max(0, spent_us - waited_us)
        came, bounds = groups.there, groups.bounds
        return answers, Cost(hosted.compute_us, came - there, bounds[came] - bounds[there])

    def _called(self, hosted: Hosted, infer: Infer, requests: list[list[Tensor]]) -> tuple[list[list[Tensor]], int]:
        """Call the model; return the outputs, and the microseconds with the turn.  Raises as `_answers`."""
        try:
            inputs = joined(requests, hosted.model.device)
            begin, self._away_ns = time.perf_counter_ns(), 0
            with watched(hosted.model.module, partial(self._look, hosted, infer)):
                outputs = hosted.model(*hosted.signature.arguments(inputs))
            answers = split(named(outputs), [each[0].shape[0] if hosted.max_batch else 1 for each in requests])
            return answers, (time.perf_counter_ns() - begin - self._away_ns) // 1000
        except (ServeError, SeatRefused):  # the latter when the computation has made way
            raise
        except Unusable as error:
            raise WrongInput(str(error)) from None
        except (Exception, SystemExit) as error:  # the model's code may raise anything
            hosted.model.check()
            raise ModelFailed(text_of(error)) from error


def main() -> int:
    """Connect to the front and compute until it goes; return the exit code."""
    try:
        torch_device.begin()
        connection, token = connect()
    except (NoGpu, NoFront) as error:
        print(f"carpool: {error}", file=sys.stderr)
        return 1
    channel = MessageChannel(connection, ToWorker)
    worker = Worker(channel, of_process())
    try:
        with suppress(Gone):
            channel.send(Hello(token))
            worker.serve()
    except Broken as error:
        print(f"carpool: the front is of another version, or has died: {error}", file=sys.stderr)
        return 1
    except NoGpu as error:
        print(f"carpool: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
