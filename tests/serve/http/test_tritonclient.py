"""NVIDIA's public client, which knows nothing of Carpool: every call of it that the protocol has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.serve.backend import MODELS
from tests.serve.conftest import Server, Start

DTYPES = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16,
          np.float32, np.float64, np.object_]  # fmt: skip
REQUESTS, CLIENTS = 25, 8


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.address) as client:
        yield client


def given(name: str, values: Any, *, binary: bool = True) -> triton.InferInput:
    made = triton.InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("affine") and client.is_model_ready("affine", "1")
    assert not client.is_model_ready("q") and not client.is_model_ready("affine", "2")
    assert client.get_server_metadata()["name"] == "carpool"
    assert client.get_model_metadata("affine")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert {entry["name"] for entry in client.get_model_repository_index()} == {*MODELS, "broken"}
    assert not client.is_model_ready("broken")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_datatype_there_and_back(client: triton.InferenceServerClient, dtype: Any, binary: bool) -> None:
    x = np.array([["a", "bc"], ["", "ä"]], dtype) if dtype is np.object_ else np.array([[0, 1], [1, 1]], dtype)
    outputs = [triton.InferRequestedOutput("x", binary_data=binary)]
    model = f"echo-{np_to_triton_dtype(x.dtype)}"
    y = client.infer(model, [given("x", x, binary=binary)], outputs=outputs).as_numpy("x")
    if dtype is np.object_:
        y = np.array([[each.decode() if isinstance(each, bytes) else each for each in row] for row in y], dtype)
    assert y.shape == x.shape and (y == x).all()


def test_bfloat16(client: triton.InferenceServerClient) -> None:
    import ml_dtypes

    x = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    assert (client.infer("echo-BF16", [given("x", x)]).as_numpy("x") == x).all()


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compression(client: triton.InferenceServerClient, compression: str) -> None:
    x = np.zeros((8, 3), np.float32)
    result = client.infer("affine", [given("x", x)], request_compression_algorithm=compression,
                          response_compression_algorithm=compression)  # fmt: skip
    assert (result.as_numpy("y") == 1).all()


def test_ids_versions_and_what_is_wanted(client: triton.InferenceServerClient) -> None:
    a, b = np.ones((1, 2)), np.full((1, 2), 2.0)
    outputs = [triton.InferRequestedOutput("difference", binary_data=False)]
    result = client.infer("pair", [given("a", a), given("b", b)], "1", outputs, "7", priority=1, timeout=10**9)
    assert result.as_numpy("difference").tolist() == [[-1, -1]]
    assert result.as_numpy("sum") is None
    assert result.get_response()["id"] == "7"


def test_errors(client: triton.InferenceServerClient, server: Server) -> None:
    with pytest.raises(InferenceServerException, match="there is no model 'q'") as caught:
        client.infer("q", [given("x", np.ones((1, 3), np.float32))])
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="but the model takes FP32") as caught:
        client.infer("affine", [given("x", np.ones((1, 3)))])
    assert caught.value.status() == "400"
    with server.held(), pytest.raises(InferenceServerException, match="deadline") as caught:
        client.infer("affine", [given("x", np.ones((1, 3), np.float32))], timeout=1000)
    assert caught.value.status() == "504"


async def test_concurrent_clients_get_their_own_answers(serving: Start) -> None:
    server = serving()

    async def one(number: int) -> None:
        async with triton_aio.InferenceServerClient(server.address) as client:
            for place in range(REQUESTS):
                x = np.full((1 + place % 3, 3), number * 1000 + place, np.float32)
                result = await client.infer("affine", [given("x", x, binary=place % 2 == 0)])
                assert (result.as_numpy("y") == 2 * x + 1).all()

    await asyncio.gather(*(one(number) for number in range(CLIENTS)))
    assert server.backend.answered == CLIENTS * REQUESTS
