"""Responses to requests for inference."""

from __future__ import annotations

from collections.abc import Sequence

from carpool.serve.oip.datatypes import NotRepresentable
from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.messages import VERSION, InferRequest, Message, WireResponse, WireTensor, decode_json
from carpool.serve.oip.tensors import decode_tensor, encode_tensor, join, split
from carpool.serve.oip.values import Tensor


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
