"""A claim as the API server has it: the device that it was allocated, and Carpool's options from its parameters."""

from __future__ import annotations

import hashlib
import math
import re
from decimal import Decimal
from typing import Any

import msgspec

from carpool.core.spelling import did_you_mean
from carpool.options.table import JOINING_OPTIONS, from_python, request_fields
from carpool.protocol.session import JoinOptions

DRIVER = "carpool.dev"
#: Options of a claim: those of `carpool env`, without the device, which the scheduler chooses.
CLAIM_OPTIONS = tuple(option.name for option in JOINING_OPTIONS if option.name != "device")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?|[KMGTPE]i)")
_FACTORS = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_FACTORS |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}


class BadClaim(ValueError):
    """A claim that cannot be prepared; the text says what to do, and the kubelet writes it into the pod's events."""


class OwnerReference(msgspec.Struct, frozen=True):
    """The object for which a claim was made."""

    kind: str
    name: str


class ClaimMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """``owner_references``: of a claim made from a template, its pod."""

    namespace: str
    name: str
    uid: str
    owner_references: list[OwnerReference] = []


class DeviceResult(msgspec.Struct, frozen=True, rename="camel"):
    """A device that a claim was allocated."""

    request: str
    driver: str
    pool: str
    device: str
    consumed_capacity: dict[str, str] = {}


class OpaqueConfig(msgspec.Struct, frozen=True):
    """Parameters for the driver of this name."""

    driver: str
    parameters: Any = None


class ClaimConfig(msgspec.Struct, frozen=True):
    """Parameters of a class or a claim; ``requests``: to which they apply, empty for all."""

    source: str
    requests: list[str] = []
    opaque: OpaqueConfig | None = None


class AllocatedDevices(msgspec.Struct, frozen=True):
    """The decision of the scheduler."""

    results: list[DeviceResult] = []
    config: list[ClaimConfig] = []


class ClaimAllocation(msgspec.Struct, frozen=True):
    """The field ``status.allocation``."""

    devices: AllocatedDevices = AllocatedDevices()


class ClaimStatus(msgspec.Struct, frozen=True):
    """``allocation``: None while the claim waits for its devices."""

    allocation: ClaimAllocation | None = None


class ResourceClaim(msgspec.Struct, frozen=True):
    """The fields of a claim that matter here."""

    metadata: ClaimMetadata
    status: ClaimStatus = ClaimStatus()

    def result(self, node: str) -> DeviceResult | None:
        """Return the claim's device on this node; None if it has none.  Raises BadClaim if it has several."""
        found = [result for result in self._devices.results if (result.driver, result.pool) == (DRIVER, node)]
        if len(found) > 1:
            raise BadClaim(f"the claim has {len(found)} devices; a container has one: ask for one device in each claim")
        return found[0] if found else None

    def options(self, result: DeviceResult) -> JoinOptions:
        """Return what the claim's processes join with.  Raises BadClaim."""
        fields = self._hint(result)
        for config in sorted(self._devices.config, key=lambda config: config.source != "FromClass"):  # claims prevail
            if config.opaque is not None and config.opaque.driver == DRIVER and _applies(config, result.request):
                fields |= _fields(config.opaque.parameters)
        own = {"device": result.device, "launcher": f"claim {self.metadata.namespace}/{self.metadata.name}"}
        return JoinOptions(**({"name": self._name} | fields | own))

    @property
    def digest(self) -> str:
        """Return a short text that stands for what was allocated: another allocation has another."""
        return hashlib.sha256(msgspec.json.encode(self._devices)).hexdigest()

    @property
    def _devices(self) -> AllocatedDevices:
        allocation = self.status.allocation
        return AllocatedDevices() if allocation is None else allocation.devices

    @property
    def _name(self) -> str:
        pods = (owner.name for owner in self.metadata.owner_references if owner.kind == "Pod")
        return next(pods, self.metadata.name)

    def _hint(self, result: DeviceResult) -> dict[str, Any]:
        consumed = result.consumed_capacity
        size = quantity(consumed.get("memory", consumed.get(f"{DRIVER}/memory", "0")))
        return {"persistent_bytes": size} if size else {}


def _applies(config: ClaimConfig, request: str) -> bool:
    """Return whether parameters are for a request, which may be ``main/sub`` where the claim has alternatives."""
    return not config.requests or bool({request, base_request(request)} & {*config.requests})


def base_request(request: str) -> str:
    """Return the name that a pod gives to a request with alternatives."""
    return request.partition("/")[0]


def _fields(parameters: Any) -> dict[str, Any]:
    """Convert parameters to fields of `JoinOptions`.  Raises BadClaim."""
    if not isinstance(parameters, dict):
        raise BadClaim("the parameters must be an object, as in {weight: 200}")
    for name in parameters:
        if name not in CLAIM_OPTIONS:
            hint = f"{did_you_mean(name, CLAIM_OPTIONS)}known: {', '.join(CLAIM_OPTIONS)}"
            raise BadClaim(f"there is no option {name!r} ({hint})")
    try:
        return request_fields(from_python(parameters))
    except ValueError as error:
        raise BadClaim(f"the option {error}") from None


def quantity(text: str) -> int:
    """Parse a number as Kubernetes writes it, rounded up.  Raises BadClaim.

    >>> quantity("2Gi"), quantity("1500M"), quantity("2e3"), quantity("1500m")
    (2147483648, 1500000000, 2000, 2)
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise BadClaim(f"{text!r} is not a quantity; write for example 2Gi")
    return math.ceil(Decimal(found[1]) * _FACTORS[found[2]])
