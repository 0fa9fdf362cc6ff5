"""Requests for the models of one environment: they wait, are computed together by its workers, and are answered.

A request whose computation failed is tried once more, alone: if its worker died, or if the model's code raised an error
while it was computed with others, of which one may be the reason.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from carpool.serve.metrics import Metrics
from carpool.serve.oip.errors import DeadlineMissed, ModelFailed, ModelUnavailable, QueueFull, ServeError, WorkerLost
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import Tensor
from carpool.serve.pool.pool import Pool, PoolWorker
from carpool.serve.queue.batching import Batch, Batcher, Order, Queue, Refusal, WaitingRequest
from carpool.serve.queue.running_median import Recent

log = logging.getLogger(__name__)

#: A worker that has not answered for so long is taken for hung, and replaced.
HUNG_S = 600.0
GONE = "it has been removed"
#: For requests that are refused because there are no workers: the pool goes on trying to start some.
RETRY_AFTER_S = 5


@dataclass(eq=False, slots=True)
class _Request:
    asked: InferRequest
    waiting: WaitingRequest
    answer: asyncio.Future[Sequence[Tensor]]
    tried: bool = False  # in vain

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(eq=False, slots=True)
class _Model:
    """``open``: its requests that are not answered; ``unused`` is set while there are none."""

    queue: Queue
    batches: bool
    computing: Recent = field(default_factory=Recent)
    answering: Recent = field(default_factory=Recent)
    open: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def estimate(self, now: int) -> None:
        """What a batch will take, from what it took of late."""
        self.queue.compute_us = self.computing.typical(now)
        self.queue.answer_us = self.answering.typical(now)


class Dispatcher:
    """``close`` it in the end; its pool is closed with it."""

    def __init__(self, pool: Pool, metrics: Metrics, order: Order = Order.FCFS, *, hung_s: float = HUNG_S) -> None:
        self.pool = pool
        pool.changed = self._pump
        self._metrics = metrics
        self._hung_s = hung_s
        self._batcher = Batcher(order)
        self._models: dict[str, _Model] = {}
        self._requests: dict[int, _Request] = {}  # all that are not answered
        self._again: deque[int] = deque()  # those that come before all others
        self._numbers = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._computing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Whatever is not answered yet is refused."""
        for key in list(self._models):
            self.remove(key, "the server is stopping")
        for task in self._computing:
            task.cancel()
        # At once, so that nobody takes the place of a worker whose computation is cancelled.
        await asyncio.gather(*self._computing, self.pool.close(), return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    # Models

    def add(self, key: str, queue: Queue, *, batches: bool) -> None:
        """The pool's workers have this model.  ``batches``: the first dimension of its inputs is that of the batch."""
        self._models[key] = _Model(queue, batches)
        self._models[key].unused.set()
        self._batcher.add_model(key, queue)

    def remove(self, key: str, why: str = GONE) -> None:
        """What waits for it is refused; what is being computed is answered.  An unknown key is no error."""
        if self._models.pop(key, None) is None:
            return
        for number in [*(waiting.id for waiting in self._batcher.remove_model(key)), *self._again]:
            request = self._requests.get(number)
            if request is not None and request.waiting.model == key:
                request.fail(ModelUnavailable(f"model {request.asked.model!r} is not available: {why}"))

    async def unused(self, key: str) -> None:
        """Wait until it has no request."""
        if (model := self._models.get(key)) is not None:
            await model.unused.wait()

    def waiting(self) -> Mapping[str, int]:
        """How many requests wait for each model, by key."""
        return self._batcher.waiting()

    # Requests

    async def infer(self, key: str, asked: InferRequest, timeout_us: int | None) -> Sequence[Tensor]:
        """The answer within ``timeout_us``.  Raises ServeError.  Who is cancelled is not computed any more."""
        model = self._models.get(key)
        if model is None:
            raise ModelUnavailable(f"model {asked.model!r} is not available: {GONE}")
        if self.pool.out_of_service:
            raise self._no_workers()
        request = self._accept(key, model, asked, timeout_us)
        deadline_us = request.waiting.deadline_us
        try:
            self._pump()
            async with asyncio.timeout_at(None if deadline_us is None else deadline_us / 1e6):
                return await request.answer
        except TimeoutError:
            raise DeadlineMissed("the deadline has passed") from None
        finally:
            self._forget(request, model)

    def _accept(self, key: str, model: _Model, asked: InferRequest, timeout_us: int | None) -> _Request:
        """Raises QueueFull, DeadlineMissed."""
        now = now_us()
        model.estimate(now)
        form = tuple(tensor.shape[1:] for tensor in asked.inputs) if model.batches else ()
        deadline_us = None if timeout_us is None else now + timeout_us
        waiting = WaitingRequest(next(self._numbers), key, asked.rows, form, deadline_us, asked.priority)
        match self._batcher.add(waiting, now):
            case Refusal.QUEUE_FULL:
                text = f"{model.queue.most_waiting} requests wait for model {asked.model!r} already"
                raise QueueFull(text, _seconds_until_half_empty(model.queue))
            case Refusal.DEADLINE_MISSED:
                raise DeadlineMissed(f"the answer would be too late: computing takes {model.queue.compute_us} us")
        request = _Request(asked, waiting, asyncio.get_running_loop().create_future())
        self._requests[waiting.id] = request
        model.open += 1
        model.unused.clear()
        return request

    def _forget(self, request: _Request, model: _Model) -> None:
        self._batcher.withdraw(request.waiting.id)
        del self._requests[request.waiting.id]
        model.open -= 1
        if not model.open:
            model.unused.set()

    # Computing

    def _pump(self) -> None:
        """Whenever something has changed, or a time has come."""
        now = now_us()
        for late in self._batcher.expire(now):
            self._requests[late.id].fail(DeadlineMissed("the request could not be computed before its deadline"))
        if self.pool.out_of_service:
            for request in self._requests.values():
                request.fail(self._no_workers())
        while self.pool.has_idle and (batch := self._next(now)) is not None:
            requests = [self._requests[waiting.id] for waiting in batch.requests]
            task = asyncio.create_task(self._compute(self.pool.take(batch.model), batch.model, requests))
            self._computing.add(task)
            task.add_done_callback(self._computing.discard)
        self._set_timer()

    def _next(self, now: int) -> Batch | None:
        while self._again:
            if (request := self._requests.get(self._again.popleft())) is not None and not request.answer.done():
                return Batch(request.waiting.model, (request.waiting,))
        return self._batcher.take(now)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times = [self._batcher.next_late(), self._batcher.next_due() if self.pool.has_idle else None]
        if known := [time_us for time_us in times if time_us is not None]:
            delay_s = max(0, min(known) - now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump)

    async def _compute(self, worker: PoolWorker, key: str, requests: list[_Request]) -> None:
        """However it ends, the worker is given back, and every request answered, failed, or tried again."""
        lost = True
        try:
            await self._answer(worker, key, requests)
            lost = False
        except WorkerLost:
            self._failed(requests, WorkerLost("the worker that computed it died, and so did the one that tried again"))
        except ServeError as error:
            lost = False
            self._failed(requests, error)
        except TimeoutError:
            log.error("worker %s has not answered for %g s and is replaced", worker.job.name, self._hung_s)
            _fail_all(requests, WorkerLost(f"the worker has not answered for {self._hung_s:g} s"))
        except asyncio.CancelledError:
            _fail_all(requests, ModelUnavailable("the server is stopping"))
            raise
        except Exception as error:
            log.exception("a mistake in Carpool: model %r could not be computed", requests[0].asked.model)
            _fail_all(requests, error)
        finally:
            self.pool.give_back(worker, lost=lost)

    async def _answer(self, worker: PoolWorker, key: str, requests: list[_Request]) -> None:
        deadlines = [each.waiting.deadline_us for each in requests if each.waiting.deadline_us is not None]
        begin = now_us()
        async with asyncio.timeout(self._hung_s):
            results = await worker.handle.infer(key, [each.asked for each in requests], min(deadlines, default=None))
        if (model := self._models.get(key)) is not None:
            now = now_us()
            model.answering.add(now - begin, now)
            model.computing.add(worker.handle.cost.compute_us, now)
            model.estimate(now)
        rows = sum(each.waiting.rows for each in requests)
        self._metrics.computed(requests[0].asked.model, rows, worker.handle.cost.copied_bytes)
        for request, outputs in zip(requests, results, strict=True):
            if not request.answer.done():
                request.answer.set_result(outputs)

    def _failed(self, requests: list[_Request], error: ServeError) -> None:
        again = isinstance(error, WorkerLost) or (isinstance(error, ModelFailed) and len(requests) > 1)
        for request in requests:
            if again and not request.tried and not request.answer.done() and request.waiting.model in self._models:
                request.tried = True
                self._again.append(request.waiting.id)
                self._metrics.retried(request.asked.model)
            else:
                request.fail(error)

    def _no_workers(self) -> ServeError:
        return ModelUnavailable(f"no worker can be started: {self.pool.trouble}", RETRY_AFTER_S)


def now_us() -> int:
    """Microseconds of the monotonic clock, which deadlines are on too."""
    return time.monotonic_ns() // 1000


def _fail_all(requests: list[_Request], error: BaseException) -> None:
    for request in requests:
        request.fail(error)


def _seconds_until_half_empty(queue: Queue) -> int:
    """As long as it takes to compute half of what waits, one batch after the other; at least one."""
    batches = -(-len(queue) // (2 * queue.max_batch))
    return max(1, -(-batches * queue.answer_us // 1_000_000))
