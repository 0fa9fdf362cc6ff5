"""The TLS certificate of the endpoint."""

from __future__ import annotations

import ssl
from pathlib import Path

from carpool.serve.http.auth import check_private
from carpool.serve.oip.errors import StartError


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context for a server with this certificate (PEM, with the chain behind it) and key.

    Raises StartError.
    """
    try:
        check_private(key, "the key")
        certificate.open("rb").close()
    except OSError as error:
        raise StartError(f"cannot read the certificate or its key: {error}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python leaves that to the machine's configuration
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise StartError(
            f"{certificate} and {key} are no certificate and its key, both in PEM, the key without a password: {error}"
        ) from None
    return context


def _no_password() -> str:
    """Refuse to give a password; without this function OpenSSL would ask at the terminal."""
    raise ValueError("the key has a password")
