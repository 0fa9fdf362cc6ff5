"""Requests for the models of one environment: they wait, are computed together by its workers, and are answered.

A request whose computation failed is tried once more, alone: if its worker died, or if the model's code raised an error
while it was computed with others, of which one may be the cause.

A computation for which no client waits any more is left.  Where the model cannot be left its worker is replaced once
other requests wait.  If some of a batch's clients have gone and the batch takes longer than usual, it is left as well,
and the rest is tried once more.
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
from carpool.serve.oip.errors import (
    ComputationLeft,
    DeadlineMissed,
    ModelFailed,
    ModelUnavailable,
    QueueFull,
    ServeError,
    WorkerLost,
)
from carpool.serve.oip.messages import InferRequest
from carpool.serve.oip.values import Tensor
from carpool.serve.pool.pool import Pool, PoolWorker
from carpool.serve.queue.batching import Batch, Batcher, Order, Queue, QueueRefusal, Recent, WaitingRequest

log = logging.getLogger(__name__)

#: Time without an answer after which a worker counts as hung, and is replaced.
HUNG_S = 600.0
#: Time after a request to leave a computation at which its worker is replaced: while others wait, and in any case.
LEAVE_US, LONGEST_LEAVE_US = 1_000_000, 30_000_000
#: How often, and at what interval, computations with more time are asked to make way for one that has not begun.
MOST_TRIES, TRY_S = 500, 0.02
#: Multiple of the usual time after which the rest of a batch's clients does not wait for the batch.
UNUSUAL = 2
GONE = "it has been removed"
#: Retry time for requests refused for want of workers: the pool goes on trying to start some.
RETRY_AFTER_S = 5


@dataclass(eq=False, slots=True)
class _Request:
    asked: InferRequest
    waiting: WaitingRequest
    answer: asyncio.Future[Sequence[Tensor]]
    tried: bool = False  # computed once without success
    computation: _Computation | None = None

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(eq=False, slots=True)
class _Computation:
    """``waiting``: requests of its batch whose clients still wait for it; times are None or of `now_us`."""

    worker: PoolWorker
    key: str
    batch: list[_Request]
    waiting: list[_Request]
    begun_us: int
    usual_us: int  # usual computing time, 0: unknown
    deadline_us: int | None = None  # the earliest of the batch
    split_us: int | None = None  # when the waiting requests are tried once more, because other clients have gone
    left_us: int | None = None

    def hurries_more(self, other: _Computation, now: int) -> bool:
        """Whether ``other``, which computes, must make way for this computation, which waits for its turn.

        Without deadlines: once it has waited for as long as it will compute, so neither takes more than twice as long.
        """
        if self.key == other.key:
            return False
        if self.deadline_us is None:
            return other.deadline_us is None and 0 < self.usual_us <= now - self.begun_us
        return other.deadline_us is None or self.deadline_us < other.deadline_us

    def is_split(self, now: int) -> bool:
        return bool(self.waiting) and self.split_us is not None and self.split_us <= now

    def give_up_us(self, others_wait: bool) -> int | None:
        """Return when its worker is to be given up; None: not."""
        if self.left_us is None or self.worker.handle.lost.is_set():
            return None
        return self.left_us + (LEAVE_US if others_wait else LONGEST_LEAVE_US)


@dataclass(eq=False, slots=True)
class _Model:
    """``open``: the number of its unanswered requests; ``unused`` is set while there are none."""

    queue: Queue
    batches: bool
    computing: Recent = field(default_factory=Recent)
    answering: Recent = field(default_factory=Recent)
    open: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    def estimate(self, now: int) -> None:
        """Update the expected times of a batch from those of recent batches."""
        self.queue.compute_us = self.computing.typical(now)
        self.queue.answer_us = self.answering.typical(now)


class Running:
    """The computations of all dispatchers of a front: they share the devices."""

    def __init__(self) -> None:
        self.computations: list[_Computation] = []

    def make_way_for(self, one: _Computation, tries: int = MOST_TRIES) -> None:
        """Ask computations with more time to give their turn away, repeatedly until this one has begun.

        A single request is not enough, because this one may not want its turn yet.
        """
        if one not in self.computations or one.worker.handle.has_begun or not tries:
            return
        for other in self.computations:
            if other.worker.handle.has_begun and one.hurries_more(other, now_us()):
                other.worker.handle.make_way()
        asyncio.get_running_loop().call_later(TRY_S, self.make_way_for, one, tries - 1)


class Dispatcher:
    """The dispatcher; `close` it, and with it its pool, at the end.  ``running``: shared with other dispatchers."""

    def __init__(
        self,
        pool: Pool,
        metrics: Metrics,
        order: Order = Order.FCFS,
        *,
        running: Running | None = None,
        hung_s: float = HUNG_S,
    ) -> None:
        self.pool = pool
        pool.changed = self._pump
        self._metrics = metrics
        self._hung_s = hung_s
        self._batcher = Batcher(order)
        self._models: dict[str, _Model] = {}
        self._requests: dict[int, _Request] = {}  # all unanswered requests
        self._again: deque[int] = deque()  # requests to try again, before all others
        self._numbers = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._computing: set[asyncio.Task[None]] = set()
        self._computations: list[_Computation] = []
        self._running = running or Running()

    async def close(self) -> None:
        """Stop; refuse all unanswered requests."""
        for key in list(self._models):
            self.remove(key, "the server is stopping")
        for task in self._computing:
            task.cancel()
        # All at once, so that a worker whose computation is cancelled is not replaced.
        await asyncio.gather(*self._computing, self.pool.close(), return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    # Models

    def add(self, key: str, queue: Queue, *, batches: bool) -> None:
        """Add a model that the pool's workers have.  ``batches``: the first dimension of its inputs is the batch."""
        self._models[key] = _Model(queue, batches)
        self._models[key].unused.set()
        self._batcher.add_model(key, queue)

    def remove(self, key: str, why: str = GONE) -> None:
        """Remove a model: waiting requests are refused, running ones answered.  An unknown key is not an error."""
        if self._models.pop(key, None) is None:
            return
        for number in [*(waiting.id for waiting in self._batcher.remove_model(key)), *self._again]:
            request = self._requests.get(number)
            if request is not None and request.waiting.model == key:
                request.fail(ModelUnavailable(f"model {request.asked.model!r} is not available: {why}"))

    async def unused(self, key: str) -> None:
        """Wait until the model has no open request."""
        if (model := self._models.get(key)) is not None:
            await model.unused.wait()

    def waiting(self) -> Mapping[str, int]:
        """Return how many requests wait for each model, by key."""
        return self._batcher.waiting()

    # Requests

    async def infer(self, key: str, asked: InferRequest, timeout_us: int | None) -> Sequence[Tensor]:
        """Return the answer within ``timeout_us``.  Raises ServeError.  A cancelled request is no longer computed."""
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
        """Enter a request into its queue.  Raises QueueFull, DeadlineMissed."""
        now = now_us()
        model.estimate(now)
        form = tuple(tensor.shape[1:] for tensor in asked.inputs) if model.batches else ()
        deadline_us = None if timeout_us is None else now + timeout_us
        waiting = WaitingRequest(next(self._numbers), key, asked.rows, form, deadline_us, asked.priority)
        match self._batcher.add(waiting, now):
            case QueueRefusal.QUEUE_FULL:
                text = f"{model.queue.most_waiting} requests wait for model {asked.model!r} already"
                raise QueueFull(text, _seconds_until_half_empty(model.queue))
            case QueueRefusal.DEADLINE_MISSED:
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
        if request.computation in self._computations:
            self._gone(request, request.computation, model)

    def _gone(self, request: _Request, computation: _Computation, model: _Model) -> None:
        """Note that a client no longer waits for a running computation."""
        computation.waiting.remove(request)
        now = now_us()
        if not computation.waiting:
            self._leave(computation, now)
        elif not any(each.tried for each in computation.waiting):
            usual_us = model.answering.typical(now)
            computation.split_us = max(now, computation.begun_us + UNUSUAL * usual_us)
        self._set_timer()

    def _leave(self, computation: _Computation, now: int) -> None:
        if computation.left_us is None:
            computation.left_us = now
            computation.worker.handle.leave()

    def _look_after(self, now: int) -> None:
        """Split, leave or give up computations that have lost clients and whose time has come."""
        for each in list(self._computations):
            if each.is_split(now) and each.key in self._models:
                self._try_again(each.waiting)
                each.waiting = []
                self._leave(each, now)
            give_up_us = each.give_up_us(bool(self._requests))
            if give_up_us is not None and give_up_us <= now:
                self._give_up(each, now)

    def _give_up(self, computation: _Computation, now: int) -> None:
        """Give up the computation's worker; one that still waits for its turn is harmless, and checked again later."""
        if computation.worker.handle.has_begun:
            self.pool.give_up(computation.worker, "no client waits for its result, and it cannot be interrupted")
        else:
            computation.left_us = now

    def _try_again(self, requests: list[_Request]) -> None:
        for request in requests:
            request.tried, request.computation = True, None
            self._again.append(request.waiting.id)
            self._metrics.retried(request.asked.model)

    # Computing

    def _pump(self) -> None:
        """Start what can be started; called whenever something has changed or a time has come."""
        now = now_us()
        self._look_after(now)
        for late in self._batcher.expire(now):
            self._requests[late.id].fail(DeadlineMissed("the request could not be computed before its deadline"))
        if self.pool.out_of_service:
            for request in self._requests.values():
                request.fail(self._no_workers())
        while self.pool.has_idle and (batch := self._next(now)) is not None:
            requests = [self._requests[waiting.id] for waiting in batch.requests]
            task = asyncio.create_task(self._compute(self._begun(batch, requests, now)))
            self._computing.add(task)
            task.add_done_callback(self._computing.discard)
        self._set_timer()

    def _begun(self, batch: Batch, requests: list[_Request], now: int) -> _Computation:
        deadlines = [each.deadline_us for each in batch.requests if each.deadline_us is not None]
        worker = self.pool.take(batch.model)
        usual_us = self._models[batch.model].queue.compute_us
        begun = _Computation(worker, batch.model, requests, requests[:], now, usual_us, min(deadlines, default=None))
        for request in requests:
            request.computation = begun
        self._computations.append(begun)
        self._running.computations.append(begun)
        return begun

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
        times += [each.split_us for each in self._computations if each.waiting and each.key in self._models]
        times += [each.give_up_us(bool(self._requests)) for each in self._computations]
        if known := [time_us for time_us in times if time_us is not None]:
            delay_s = max(0, min(known) - now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump)

    async def _compute(self, it: _Computation) -> None:
        """Compute a batch; in any case give the worker back, and answer, fail or try again every request."""
        lost = True
        try:
            await self._answer(it)
            lost = False
        except WorkerLost:
            self._failed(it, WorkerLost("the worker that computed it died, and so did the one that tried again"))
        except ComputationLeft:
            lost = False
        except ServeError as error:
            lost = False
            self._failed(it, error)
        except TimeoutError:
            self.pool.give_up(it.worker, f"it has not answered for {self._hung_s:g} s")
            _fail_all(it.waiting, WorkerLost(f"the worker has not answered for {self._hung_s:g} s"))
        except asyncio.CancelledError:
            _fail_all(it.waiting, ModelUnavailable("the server is stopping"))
            raise
        except Exception as error:
            log.exception("an internal error: model %r could not be computed", it.batch[0].asked.model)
            _fail_all(it.waiting, error)
        finally:
            self._computations.remove(it)
            self._running.computations.remove(it)
            self.pool.give_back(it.worker, lost=lost)

    async def _answer(self, it: _Computation) -> None:
        worker, key, requests, begin = it.worker, it.key, it.batch, now_us()
        asyncio.get_running_loop().call_soon(self._running.make_way_for, it)
        async with asyncio.timeout(self._hung_s):
            results = await worker.handle.infer(key, [each.asked for each in requests], it.deadline_us)
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

    def _failed(self, it: _Computation, error: ServeError) -> None:
        again = isinstance(error, WorkerLost) or (isinstance(error, ModelFailed) and len(it.batch) > 1)
        for request in it.waiting:
            if again and not request.tried and not request.answer.done() and request.waiting.model in self._models:
                self._try_again([request])
            else:
                request.fail(error)

    def _no_workers(self) -> ServeError:
        return ModelUnavailable(f"no worker can be started: {self.pool.trouble}", RETRY_AFTER_S)


def now_us() -> int:
    """Return microseconds of the monotonic clock, which deadlines use too."""
    return time.monotonic_ns() // 1000


def _fail_all(requests: list[_Request], error: BaseException) -> None:
    for request in requests:
        request.fail(error)


def _seconds_until_half_empty(queue: Queue) -> int:
    """Return the time to compute half of the waiting requests, batch after batch; at least one second."""
    batches = -(-len(queue) // (2 * queue.max_batch))
    return max(1, -(-batches * queue.answer_us // 1_000_000))
