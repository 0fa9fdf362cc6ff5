"""The API server, as far as the driver asks it: JSON over HTTPS with the token of a service account."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

GROUP = "/apis/resource.k8s.io/v1"
#: An API server that does not answer for so long counts as down.
ANSWERS_S = 10.0
_HINTS = {
    401: "is the service account of docs/deploy/kubernetes/dra/rbac.yaml the pod's?",
    403: "apply docs/deploy/kubernetes/dra/rbac.yaml",
    404: "the driver needs Kubernetes 1.34 or newer; before, use `carpool k8s plugin`",
}


class ApiServerError(Exception):
    """A request that has failed.  ``status``: of HTTP; 0: no answer."""

    def __init__(self, status: int, text: str) -> None:
        hint = _HINTS.get(status)
        super().__init__(f"the API server: {text}" + (f" ({hint})" if hint else ""))
        self.status = status


class KubernetesApi:
    """``account``: a directory with ``token`` and ``ca.crt``, read for each request because both are renewed.

    Raises ValueError if ``url`` would show the token to everybody on the way.
    """

    def __init__(self, url: str, account: Path) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of an API server; it begins with https://")
        self._place, self._account = (parts.hostname, parts.port), account

    def get(self, path: str) -> Any:
        """Return an object; None if there is none of that name.  Raises ApiServerError."""
        status, body = self._ask("GET", path)
        if status == 404 and isinstance(body, dict) and body.get("details", {}).get("name"):
            return None
        return _checked(status, body)

    def post(self, path: str, body: Any) -> Any:
        """Make an object, and return it as it is now.  Raises ApiServerError."""
        return _checked(*self._ask("POST", path, body))

    def put(self, path: str, body: Any) -> Any:
        """Replace an object, and return it as it is now.  Raises ApiServerError, 409 if it has changed meanwhile."""
        return _checked(*self._ask("PUT", path, body))

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        try:
            connection = self._connection()
            headers = {"Authorization": f"Bearer {(self._account / 'token').read_text().strip()}"}
            content = None if body is None else json.dumps(body).encode()
            try:
                connection.request(method, path, content, headers | {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, _decoded(answer.read())
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ApiServerError(0, f"{type(error).__name__}: {error}") from None

    def _connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._account / "ca.crt")
        return http.client.HTTPSConnection(*self._place, timeout=ANSWERS_S, context=context)


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return {"message": content.decode(errors="replace").strip()}


def _checked(status: int, body: Any) -> Any:
    if status not in (200, 201):
        raise ApiServerError(status, f"{status}: {body.get('message', '') if isinstance(body, dict) else body}")
    return body
