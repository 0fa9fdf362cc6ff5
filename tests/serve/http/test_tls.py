"""A certificate, and what is none."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from carpool.serve.client import Client, NotReachable
from carpool.serve.http.tls import tls_context
from carpool.serve.oip.errors import StartError
from tests.serve.conftest import OPTIONS, Start


def make(folder: Path, name: str, *more: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", certificate, *(more or ("-nodes",))],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    return certificate, key


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Path, Path]:
    return make(folder, "server")


def test_answers_are_encrypted(serving: Start, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving(replace(OPTIONS, tls=tls_context(*pair)))
    assert server.url.startswith("https://127.0.0.1:")
    with Client(server.url) as client, pytest.raises(NotReachable, match="certificate verify failed"):
        client.models()
    monkeypatch.setenv("SSL_CERT_FILE", str(pair[0]))
    with Client(server.url) as client:
        assert client.infer("affine", np.ones((1, 3), np.float32)).tolist() == [[3, 3, 3]]
    with Client(server.url.replace("https", "http")) as client, pytest.raises(NotReachable):
        client.models()


def test_a_context_is_of_today(pair: tuple[Path, Path]) -> None:
    assert tls_context(*pair).minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_key_that_others_may_read(folder: Path) -> None:
    certificate, key = make(folder, "open")
    key.chmod(0o640)
    with pytest.raises(StartError, match=r"others may read or write the key in .*open.key: chmod 600"):
        tls_context(certificate, key)


def test_files_that_are_missing(pair: tuple[Path, Path], folder: Path) -> None:
    for files in ((pair[0], folder / "none"), (folder / "none", pair[1])):
        with pytest.raises(StartError, match=r"cannot read the certificate or its key: .*none"):
            tls_context(*files)


def test_files_that_are_no_pair(pair: tuple[Path, Path], folder: Path) -> None:
    other = make(folder, "other")
    with_password = make(folder, "secret", "-passout", "pass:secret")
    for files in ((pair[0], other[1]), (pair[1], pair[1]), with_password):
        with pytest.raises(StartError, match="are no certificate and its key, both in PEM, the key without a password"):
            tls_context(*files)
