"""How many bytes of requests the endpoint holds: counted as the bytes arrive, for each client's address and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from carpool.serve.oip.errors import ServerBusy

#: Of the budget, for the requests from one address.
SHARE = 0.5
RETRY_AFTER_S = 1


class BodyBudget:
    """``most_bytes`` for all requests together; those of one address get `SHARE` of them."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: Counter[str] = Counter()  # by address

    def held(self) -> int:
        """Bytes of all requests."""
        return self._held.total()

    @contextmanager
    def holding(self, address: str) -> Iterator[HeldBytes]:
        """What a request from this address holds until the block ends, however it ends."""
        held = HeldBytes(self, address)
        try:
            yield held
        finally:
            held.count(0)

    def check(self, address: str, more: int) -> None:
        """Raises ServerBusy unless there is room for so many more bytes."""
        if self.held() + more > self._most:
            raise ServerBusy(f"the bodies of all requests have {self._most} bytes, which is the limit", RETRY_AFTER_S)
        if self._held[address] + more > (share := int(self._most * SHARE)):
            raise ServerBusy(f"the bodies of requests from {address} have {share} bytes, which is the limit for one "
                             "address", RETRY_AFTER_S)  # fmt: skip

    def add(self, address: str, more: int) -> None:
        """``more`` may be negative.  An address that holds nothing is forgotten."""
        self._held[address] += more
        if not self._held[address]:
            del self._held[address]


class HeldBytes:
    """Of one request."""

    def __init__(self, budget: BodyBudget, address: str) -> None:
        self._budget = budget
        self._address = address
        self._size = 0

    def resize(self, size: int) -> None:
        """The request holds so many bytes from now on.  Raises ServerBusy, and then holds what it held before."""
        if size > self._size:
            self._budget.check(self._address, size - self._size)
        self.count(size)

    def count(self, size: int) -> None:
        """The same for bytes that cannot be refused any more."""
        self._budget.add(self._address, size - self._size)
        self._size = size
