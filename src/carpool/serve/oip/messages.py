"""The contents of requests and responses, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.values import LARGEST, ModelMetadata, Tensor, TensorSpec

T = TypeVar("T")

#: Bytes of the body that are JSON; what follows is binary data.
LENGTH_HEADER = "Inference-Header-Content-Length"
READY, UNAVAILABLE = "READY", "UNAVAILABLE"  # states of models, as Triton calls them
VERSION = "1"  # a model has one version here
Parameters = dict[str, bool | int | float | str]
Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that the client asks for, and whether as bytes or in JSON."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A checked request: all inputs of the model, in its order, with shapes and bytes that agree."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[WantedOutput, ...]
    id: str = ""
    timeout_us: int | None = None  # time limit for the answer; None: as the model says
    priority: int = 0  # 1 is the highest; 0: none was given
    rows: int = 1  # of the batch dimension


@dataclass(frozen=True, slots=True)
class Message:
    """A body; ``header_bytes`` of it are JSON, or all if None."""

    body: bytes
    header_bytes: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers of the body."""
        if self.header_bytes is None:
            return {"Content-Type": "application/json"}
        return {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(self.header_bytes)}


class WireTensor(msgspec.Struct, omit_defaults=True):
    """A tensor in JSON; its data stand here, or are bytes behind the header."""

    name: str
    shape: list[Size]
    datatype: str
    parameters: Parameters = {}
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class WireOutput(msgspec.Struct, omit_defaults=True):
    """An output that is asked for, in JSON."""

    name: str
    parameters: Parameters = {}


class WireRequest(msgspec.Struct, omit_defaults=True):
    """The JSON of a request for inference."""

    inputs: list[WireTensor]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[WireOutput] = []


class WireResponse(msgspec.Struct, omit_defaults=True):
    """The JSON of its answer."""

    model_name: str
    outputs: list[WireTensor]
    model_version: str = ""
    id: str = ""


class WireModel(msgspec.Struct):
    """The JSON of a model's metadata."""

    name: str
    versions: list[str]
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class IndexEntry(msgspec.Struct):
    """A model in the answer to Triton's `/v2/repository/index`."""

    name: str
    version: str = VERSION
    state: str = READY
    reason: str = ""


def decode_json(body: bytes | memoryview, kind: type[T]) -> T:
    """Decode JSON.  Raises WrongInput, which names the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongInput(f"the JSON is not as the protocol says: {error}") from None
    except RecursionError:
        raise WrongInput("the JSON is nested too deeply") from None


def describe(model: ModelMetadata) -> WireModel:
    """Return the metadata of a model, as `GET /v2/models/NAME` gives them."""
    return WireModel(model.name, [VERSION], model.platform, model.inputs, model.outputs)


def parameter(parameters: Parameters, name: str, kind: type[Any], where: str) -> Any:
    """Return a parameter of this type; None if it is not given.  True does not count as 1.  Raises WrongInput."""
    value = parameters.get(name)
    if value is not None and type(value) is not kind:
        raise WrongInput(f"{where}: {name} is {value!r}; it must be of type {kind.__name__}")
    return value
