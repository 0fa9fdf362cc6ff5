"""Requests for inference and their responses, encoded and decoded by clients and by the server."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.messages import (
    VERSION,
    InferRequest,
    Message,
    Parameters,
    WantedOutput,
    WireOutput,
    WireRequest,
    WireResponse,
    WireTensor,
    decode_json,
    parameter,
)
from carpool.serve.oip.tensors import BinaryPart, decode_tensor, encode_tensor, join, split
from carpool.serve.oip.values import LARGEST, ModelMetadata, NotRepresentable, Tensor, TensorSpec

#: Parameters that change what is computed or where the data is; ignoring them would answer something else.
NOT_HERE = ("sequence_id", "shared_memory_region", "classification")


def encode_request(
    inputs: Sequence[Tensor],
    outputs: Sequence[str] = (),
    *,
    request_id: str = "",
    timeout_us: int | None = None,
    priority: int = 0,
) -> Message:
    """Encode a request with all tensors binary, in both directions.  No outputs named: all of them."""
    parameters: Parameters = {"binary_data_output": True}
    if timeout_us is not None:
        parameters["timeout"] = timeout_us
    if priority:
        parameters["priority"] = priority
    tensors = [encode_tensor(tensor, binary=True) for tensor in inputs]
    header = WireRequest(tensors, request_id, parameters, [WireOutput(name) for name in outputs])
    return join(header, [tensor.data for tensor in inputs])


def decode_request(model: ModelMetadata, body: bytes, header_bytes: int | None = None) -> InferRequest:
    """Decode a request that the model can compute.  Raises WrongInput, whatever the bytes are."""
    head, binary = split(body, header_bytes)
    wire = decode_json(head, WireRequest)
    _refuse_unknown(wire.parameters, "the request")
    inputs = _inputs(model, wire.inputs, binary)
    binary.check_end()
    return InferRequest(
        model.name,
        inputs,
        _outputs(model, wire),
        wire.id,
        _number(wire.parameters, "timeout") or None,
        _number(wire.parameters, "priority"),
        _rows(model, inputs),
    )


def _inputs(model: ModelMetadata, given: list[WireTensor], binary: BinaryPart) -> tuple[Tensor, ...]:
    """Decode the inputs, in the model's order."""
    specs = {spec.name: spec for spec in model.inputs}
    found: dict[str, Tensor] = {}
    for wire in given:
        where = f"input {wire.name!r}"
        spec = specs.get(wire.name)
        if spec is None:
            raise WrongInput(f"{where}: model {model.name!r} has no such input; it has: {', '.join(specs)}")
        if wire.name in found:
            raise WrongInput(f"{where}: is given twice")
        _refuse_unknown(wire.parameters, where)
        _check_spec(spec, wire, where)
        found[wire.name] = decode_tensor(wire, binary, where)
    if missing := [name for name in specs if name not in found]:
        raise WrongInput(f"model {model.name!r} also needs: {', '.join(missing)}")
    return tuple(found[name] for name in specs)


def _check_spec(spec: TensorSpec, wire: WireTensor, where: str) -> None:
    if wire.datatype != spec.datatype:
        raise WrongInput(f"{where}: is {wire.datatype!r}, but the model takes {spec.datatype}")
    if len(wire.shape) != len(spec.shape) or any(
        wanted not in (-1, size) for wanted, size in zip(spec.shape, wire.shape, strict=True)
    ):
        shape = str(wire.shape) if len(wire.shape) <= len(spec.shape) else f"of {len(wire.shape)} dimensions"
        raise WrongInput(f"{where}: the shape {shape} is not the model's, {list(spec.shape)} (-1: any size)")


def _outputs(model: ModelMetadata, wire: WireRequest) -> tuple[WantedOutput, ...]:
    """Return the wanted outputs in the order of the request; all of the model's if it names none."""
    usual = parameter(wire.parameters, "binary_data_output", bool, "the request") or False
    known = [spec.name for spec in model.outputs]
    if not wire.outputs:
        return tuple(WantedOutput(name, usual) for name in known)
    wanted: dict[str, WantedOutput] = {}
    for output in wire.outputs:
        where = f"output {output.name!r}"
        if output.name not in known:
            raise WrongInput(f"{where}: model {model.name!r} has no such output; it has: {', '.join(known)}")
        if output.name in wanted:
            raise WrongInput(f"{where}: is asked for twice")
        _refuse_unknown(output.parameters, where)
        binary = parameter(output.parameters, "binary_data", bool, where)
        wanted[output.name] = WantedOutput(output.name, usual if binary is None else binary)
    return tuple(wanted.values())


def _rows(model: ModelMetadata, inputs: tuple[Tensor, ...]) -> int:
    if not model.max_batch:
        return 1
    sizes = {tensor.shape[0] for tensor in inputs}
    if len(sizes) != 1:
        raise WrongInput(f"the inputs have different first dimensions: {sorted(sizes)}; it is the batch's")
    rows = sizes.pop()
    if not 1 <= rows <= model.max_batch:
        raise WrongInput(f"a batch of {rows}: model {model.name!r} takes 1 to {model.max_batch}")
    return rows


def _number(parameters: Parameters, name: str) -> int:
    value: int = parameter(parameters, name, int, "the request") or 0
    if not 0 <= value <= LARGEST:
        raise WrongInput(f"the request: {name} is {value}; it must be at least 0 (and below 2^63)")
    return value


def _refuse_unknown(parameters: Parameters, where: str) -> None:
    for name in NOT_HERE:
        if parameters.get(name):
            raise WrongInput(f"{where}: the parameter {name} is not supported here")


def encode_response(request: InferRequest, outputs: Sequence[Tensor]) -> Message:
    """Encode the requested outputs, each in the requested form.

    Raises WrongInput if that is JSON and cannot hold them, KeyError if the model left one out.
    """
    by_name = {tensor.name: tensor for tensor in outputs}
    wires: list[WireTensor] = []
    binary: list[bytes | memoryview] = []
    for wanted in request.outputs:
        tensor = by_name[wanted.name]
        try:
            wires.append(encode_tensor(tensor, binary=wanted.binary))
        except NotRepresentable as error:
            raise WrongInput(f"output {tensor.name!r} {error}: ask for it as binary data") from None
        if wanted.binary:
            binary.append(tensor.data)
    return join(WireResponse(request.model, wires, VERSION, request.id), binary)


def decode_response(body: bytes, header_bytes: int | None = None) -> list[Tensor]:
    """Decode a response.  Raises WrongInput unless it follows the protocol."""
    head, binary = split(body, header_bytes)
    wire = decode_json(head, WireResponse)
    outputs = [decode_tensor(tensor, binary, f"output {tensor.name!r}") for tensor in wire.outputs]
    binary.check_end()
    return outputs
