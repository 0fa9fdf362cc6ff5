"""The client of three lines, against a real endpoint, and what the page on inference says of it."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carpool.serve.client import NAMES, Client, NotReachable, Refused
from carpool.serve.oip.errors import ServeError
from tests.serve.backend import MODELS, PATIENCE_S
from tests.serve.conftest import OPTIONS, Server, Start


@pytest.fixture(scope="module", autouse=True)
def _pytorch() -> None:
    """Imported by those who run these tests only, not by all who collect them: PyTorch takes seconds."""
    global torch
    import torch


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_an_array(client: Client) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = client.infer("affine", x)
    assert y.dtype == np.float32 and (y == 2 * x + 1).all()
    y += 1  # it is the caller's


def test_a_tensor_of_pytorch(client: Client) -> None:
    x = torch.arange(6, dtype=torch.float32, requires_grad=True).reshape(3, 2).T  # neither contiguous nor a leaf
    assert (client.infer("echo-FP32", x) == x.detach().numpy()).all()
    with pytest.raises(ValueError, match=r"input 'x': .* give x.view\(torch.uint16\)"):
        client.infer("echo-BF16", torch.ones(1, 1, dtype=torch.bfloat16))


def test_pytorch_is_not_needed(python: str, server: Server) -> None:
    code = (
        "import sys, numpy; from carpool.serve.client import Client; "
        f"y = Client({server.url!r}).infer('affine', numpy.ones((1, 3), 'f4')); "
        "print(y.tolist(), sorted({'torch', 'aiohttp'} & set(sys.modules)))"
    )
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert result.stdout == "[[3.0, 3.0, 3.0]] []\n"


def test_several_inputs_and_outputs(client: Client) -> None:
    a, b = np.ones((1, 2)), np.full((1, 2), 3.0)
    results = client.infer("pair", {"a": a, "b": b})
    assert {name: value.tolist() for name, value in results.items()} == {"sum": [[4, 4]], "difference": [[-2, -2]]}
    assert client.infer("pair", {"b": b, "a": a}, outputs=["difference"]).tolist() == [[-2, -2]]


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_every_datatype(client: Client, dtype: str, shape: tuple[int, int]) -> None:
    x = np.array([[0, 1, 1], [1, 1, 0]]).astype(dtype)[: shape[0]]
    y = client.infer(f"echo-{NAMES[dtype]}", x)
    assert y.dtype == x.dtype and y.shape == shape and (y == x).all()


def test_byte_order_is_not_the_servers_concern(client: Client) -> None:
    assert client.infer("echo-INT32", np.array([[258]], ">i4")).tolist() == [[258]]


def test_bfloat16_as_bits(client: Client) -> None:
    x = torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16)
    bits = client.infer("echo-BF16", x.view(torch.uint16))
    assert torch.equal(torch.from_numpy(bits).view(torch.bfloat16), x)


@pytest.mark.parametrize("values", [[["ä", b"\xff"]], np.array([["ab", "c"]]), np.array([[b"ab", "c"]], dtype=object)])
def test_text(client: Client, values: Any) -> None:
    result = client.infer("echo-BYTES", np.array(values, dtype=object))
    wanted = [each if isinstance(each, bytes) else each.encode() for each in np.ravel(np.array(values, dtype=object))]
    assert result.ravel().tolist() == wanted


@pytest.mark.parametrize(
    ("model", "inputs", "said"),
    [
        ("q", np.ones(1), "there is no model 'q'"),
        ("a/b ?", np.ones(1), r"there is no model 'a/b \?'"),
        ("affine", np.ones((1, 3)), "input 'x': is 'FP64', but the model takes FP32"),
        ("pair", np.ones((1, 2)), "several inputs: give a dict with a, b"),
        ("echo-FP64", np.ones((1, 1), complex), "no datatype for arrays of complex128"),
    ],
)
def test_what_is_refused_says_why(client: Client, model: str, inputs: Any, said: str) -> None:
    with pytest.raises((Refused, ValueError), match=said) as caught:
        client.infer(model, inputs)
    assert getattr(caught.value, "status", None) == {"q": 404, "a/b ?": 404, "affine": 400}.get(model)


def test_a_deadline(server: Server, client: Client) -> None:
    x = np.ones((1, 3), np.float32)
    assert client.infer("affine", x, deadline_s=PATIENCE_S, priority=1, request_id="7").shape == (1, 3)
    with server.held(), pytest.raises(Refused, match="the deadline has passed") as caught:
        client.infer("affine", x, deadline_s=0.001)
    assert caught.value.status == 504


def test_a_full_queue(serving: Start) -> None:
    server = serving(most_waiting=0)
    with Client(server.url) as client, pytest.raises(Refused) as caught:
        client.infer("affine", np.ones((1, 3), np.float32))
    assert (caught.value.status, caught.value.retry_after_s) == (429, 3)


def test_models_and_metadata(client: Client) -> None:
    assert set(client.models()) == set(MODELS)
    assert client.metadata("affine").inputs == MODELS["affine"].inputs


def test_a_token(serving: Start) -> None:
    server = serving(replace(OPTIONS, token="s" * 16))
    with Client(server.url, token="s" * 16) as client:
        assert client.infer("affine", np.ones((1, 3), np.float32)).shape == (1, 3)
    with Client(server.url) as client, pytest.raises(Refused, match="Authorization"):
        client.models()


def test_nobody_answers() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        with Client(url_of(nobody)) as client, pytest.raises(NotReachable, match="cannot be asked"):
            client.models()


def test_the_answer_does_not_come() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(url_of(silent), timeout_s=0.05) as client,
        pytest.raises(NotReachable, match="did not answer in time"),
    ):
        client.models()


def test_a_connection_that_the_server_has_closed_is_opened_anew() -> None:
    with answering(b"[]", 2) as url, Client(url) as client:
        assert client.models() == []
        assert client.models() == []


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://a", "http://"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="is not a URL such as"):
        Client(url)


@pytest.mark.parametrize(("call", "arguments"), [("infer", ("affine", np.ones(1))), ("models", ())])
@pytest.mark.parametrize("body", [b"<html>", b'{"x": 1}', b"[[]]"])
def test_somebody_else_answers(body: bytes, call: str, arguments: Any) -> None:
    with answering(body, 1) as url, Client(url) as client, pytest.raises(NotReachable, match="in an unknown form"):
        getattr(client, call)(*arguments)


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def answering(body: bytes, times: int) -> Iterator[str]:
    """A server of something else: says 200 and this body to each connection, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(times):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        thread = threading.Thread(target=answer)
        thread.start()
        yield url_of(listener)
        thread.join(PATIENCE_S)


class _Proxy(BaseHTTPRequestHandler):
    """Answers as a proxy with TLS in front of an endpoint that has no models."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")


def test_a_proxy_with_tls_needs_a_known_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "1", "-nodes",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
        proxy.socket = context.wrap_socket(proxy.socket, server_side=True)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{proxy.server_address[1]}"
        with Client(url) as client, pytest.raises(NotReachable, match="certificate verify failed"):
            client.models()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with Client(url) as client:
            assert client.models() == []
        proxy.shutdown()


def test_the_table_of_errors_is_complete(root: Path) -> None:
    page = (root / "docs/inference.md").read_text()
    documented = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    documented += re.findall(r"(\d+) `(engine_\w+)`", (root / "docs/engines.md").read_text())
    assert sorted(documented) == sorted((str(kind.status), kind.kind) for kind in ServeError.__subclasses__())


def test_the_client_in_three_lines(root: Path, server: Server) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (root / "docs/inference.md").read_text(), re.DOTALL)
    code = example.replace("http://127.0.0.1:8000", server.url).replace("resnet", "affine")
    names = {"x": np.ones((1, 3), np.float32)}
    exec(code, names)
    names["client"].close()
    assert names["y"].tolist() == [[3, 3, 3]]
