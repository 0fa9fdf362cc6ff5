"""The number of bytes of requests that the endpoint holds: counted as bytes arrive, per client address and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from carpool.serve.oip.errors import ServerBusy

#: Share of the budget for the requests from one address.
SHARE = 0.5
RETRY_AFTER_S = 1


class BodyBudget:
    """``most_bytes`` for all requests together; those of one address get `SHARE` of them."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: Counter[str] = Counter()  # by address

    def held(self) -> int:
        """Return the bytes of all requests."""
        return self._held.total()

    @contextmanager
    def holding(self, address: str) -> Iterator[HeldBytes]:
        """Count the bytes of one request from this address until the block ends, however it ends."""
        held = HeldBytes(self, address)
        try:
            yield held
        finally:
            held.count(0)

    def check(self, address: str, more: int) -> None:
        """Check that there is room for ``more`` bytes.  Raises ServerBusy."""
        if self.held() + more > self._most:
            raise ServerBusy(f"the bodies of all requests have {self._most} bytes, which is the limit", RETRY_AFTER_S)
        if self._held[address] + more > (share := int(self._most * SHARE)):
            raise ServerBusy(f"the bodies of requests from {address} have {share} bytes, which is the limit for one "
                             "address", RETRY_AFTER_S)  # fmt: skip

    def add(self, address: str, more: int) -> None:
        """Add ``more`` bytes, which may be negative.  An address that holds nothing is forgotten."""
        self._held[address] += more
        if not self._held[address]:
            del self._held[address]


class HeldBytes:
    """The bytes of one request."""

    def __init__(self, budget: BodyBudget, address: str) -> None:
        self._budget = budget
        self._address = address
        self._size = 0

    def resize(self, size: int) -> None:
        """Set the number of bytes that the request holds.  Raises ServerBusy; the number then stays as before."""
        if size > self._size:
            self._budget.check(self._address, size - self._size)
        self.count(size)

    def count(self, size: int) -> None:
        """Set the number of bytes without a check, for bytes that can no longer be refused."""
        self._budget.add(self._address, size - self._size)
        self._size = size
