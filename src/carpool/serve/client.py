"""A synchronous client of an inference endpoint, in three lines::

    from carpool.serve.client import Client
    client = Client("http://127.0.0.1:8000")
    y = client.infer("resnet", x)

Takes NumPy arrays and CPU or GPU tensors of PyTorch, and returns NumPy arrays; PyTorch itself is not imported.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from carpool.serve.oip.codec import decode_response, encode_request
from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.messages import LENGTH_HEADER, READY, IndexEntry, Message, WireModel, decode_json
from carpool.serve.oip.values import Tensor, pack_strings, unpack_strings

Array = NDArray[Any]
T = TypeVar("T")
TIMEOUT_S = 60.0
NAMES = {
    "|b1": "BOOL", "|u1": "UINT8", "<u2": "UINT16", "<u4": "UINT32", "<u8": "UINT64", "|i1": "INT8", "<i2": "INT16",
    "<i4": "INT32", "<i8": "INT64", "<f2": "FP16", "<f4": "FP32", "<f8": "FP64",
}  # fmt: skip
DTYPES = {name: np.dtype(text) for text, name in NAMES.items()} | {"BF16": np.dtype("<u2")}


class InferenceError(Exception):
    """Base class.  The text says what is wrong."""


class NotReachable(InferenceError):
    """No server answers, or the answer does not come from an inference endpoint."""


class Refused(InferenceError):
    """The server's text.

    ``status`` is the HTTP status; ``retry_after_s``: when to try again, if the server says so.
    """

    def __init__(self, status: int, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s


class Client:
    """One connection to one endpoint, opened with the first request.  Not for several threads at once.

    Every method may raise `InferenceError`.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if parts.scheme not in kinds or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8000")
        self._url = url
        self._path = parts.path.rstrip("/")
        self._connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=timeout_s)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._models: dict[str, WireModel] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def models(self) -> list[str]:
        """The names of all models that can be asked."""
        _, body = self._ask("POST", "/v2/repository/index")
        return [entry.name for entry in self._decoded(body, list[IndexEntry]) if entry.state == READY]

    def metadata(self, model: str) -> WireModel:
        """Return the model's inputs and outputs, which are requested only once."""
        if model not in self._models:
            _, body = self._ask("GET", f"/v2/models/{quote(model, safe='')}")
            self._models[model] = self._decoded(body, WireModel)
        return self._models[model]

    def infer(
        self,
        model: str,
        inputs: Any,
        *,
        outputs: Sequence[str] = (),
        deadline_s: float | None = None,
        priority: int = 0,
        request_id: str = "",
    ) -> Any:
        """Return the model's output: an array if there is one output, otherwise arrays by name.

        ``inputs`` is an array or tensor, or several by name.  BF16 is an array of the same bits as uint16, in both
        directions; BYTES is an array of objects.  ``deadline_s``: seconds from the request's arrival; an answer that
        would come later is refused with status 504.  ``priority``: 1 is the highest.
        """
        tensors = self._tensors(model, inputs)
        timeout_us = None if deadline_s is None else max(1, round(deadline_s * 1e6))
        message = encode_request(tensors, outputs, request_id=request_id, timeout_us=timeout_us, priority=priority)
        answer, body = self._ask("POST", f"/v2/models/{quote(model, safe='')}/infer", message)
        length = answer.headers.get(LENGTH_HEADER)
        try:
            results = decode_response(body, None if length is None else int(length))
        except (WrongInput, ValueError) as error:
            raise NotReachable(f"{self._url} answers in an unknown form: {error}") from None
        arrays = {tensor.name: _array(tensor) for tensor in results}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

    def _tensors(self, model: str, inputs: Any) -> list[Tensor]:
        specs = {spec.name: spec for spec in self.metadata(model).inputs}
        if not isinstance(inputs, Mapping):
            if len(specs) != 1:
                raise ValueError(f"model {model!r} has several inputs: give a dict with {', '.join(specs)}")
            inputs = {next(iter(specs)): inputs}
        return [_tensor(name, values, specs[name].datatype if name in specs else "") for name, values in inputs.items()]

    def _ask(self, method: str, path: str, message: Message | None = None) -> tuple[http.client.HTTPResponse, bytes]:
        fresh = self._connection.sock is None
        try:
            try:
                answer, body = self._exchange(method, path, message)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if fresh:
                    raise
                # Most likely the connection was idle for too long.  Computing twice is harmless.
                self.close()
                answer, body = self._exchange(method, path, message)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            text = "did not answer in time" if isinstance(error, TimeoutError) else f"cannot be asked: {error}"
            raise NotReachable(f"{self._url} {text}") from None
        if answer.status >= 400:
            raise _refusal(answer, body)
        return answer, body

    def _exchange(self, method: str, path: str, message: Message | None) -> tuple[http.client.HTTPResponse, bytes]:
        headers = self._headers | (message.headers if message else {})
        self._connection.request(method, self._path + path, message.body if message else None, headers)
        answer = self._connection.getresponse()
        return answer, answer.read()

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return decode_json(body, kind)
        except WrongInput as error:
            raise NotReachable(f"{self._url} answers in an unknown form: {error}") from None


def _refusal(answer: http.client.HTTPResponse, body: bytes) -> Refused:
    try:
        text = str(msgspec.json.decode(body)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        text = body[:200].decode(errors="replace").strip() or "no explanation"
    after = answer.headers.get("Retry-After", "")
    return Refused(answer.status, text, float(after) if after.isdigit() else None)


def _tensor(name: str, values: Any, datatype: str) -> Tensor:
    """Convert an array or tensor.  ``datatype``: the model's; only BF16 and BYTES cannot be told from the array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except TypeError as error:
        raise ValueError(f"input {name!r}: {error}; tensors of bfloat16: give x.view(torch.uint16)") from None
    if array.dtype.kind in "OSU":
        elements = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()]
        return Tensor(name, "BYTES", array.shape, pack_strings(elements))
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    own = NAMES.get(array.dtype.str)
    if own is None:
        raise ValueError(f"input {name!r}: there is no datatype for arrays of {array.dtype}")
    if datatype == "BF16" and own == "UINT16":
        own = datatype
    return Tensor(name, own, array.shape, array.tobytes())


def _array(tensor: Tensor) -> Array:
    if tensor.datatype == "BYTES":
        return np.array(unpack_strings(tensor.data), dtype=object).reshape(tensor.shape)
    return np.ndarray(tensor.shape, DTYPES[tensor.datatype], bytearray(tensor.data))  # writable
