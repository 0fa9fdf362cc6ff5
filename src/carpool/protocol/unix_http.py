"""HTTP over the daemon's Unix socket, with the standard library; every problem becomes a `ClientError`."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from carpool.protocol.api import API_VERSION, PROTOCOL_HEADER, ErrorBody, ErrorInfo
from carpool.protocol.client_errors import (
    ApiError,
    DaemonNotAnswering,
    DaemonNotRunning,
    NotYourSocket,
    UnusablePath,
    VersionMismatch,
)
from carpool.protocol.request_id import REQUEST_HEADER, own_request_id

LONGEST_PATH = 107  # bytes: sun_path of Linux, without the final zero
_UCRED = struct.Struct("iII")  # pid, uid, gid


class _ConnectedSocket(Protocol):
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


def check_owner(sock: _ConnectedSocket, path: Path) -> None:
    """Check that the process that listens is root's or this user's.  Raises NotYourSocket."""
    # Another user's daemon must not receive this process's environment, which a submission carries.
    _, owner, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if os.geteuid() not in (0, owner) and owner != 0:
        raise NotYourSocket(path, owner)


class UnixConnection(http.client.HTTPConnection):
    """One connection to one daemon, reused for several requests."""

    def __init__(self, path: Path, *, timeout_s: float | None, check_version: bool = True) -> None:
        super().__init__("carpool", timeout=timeout_s)
        self._path = path
        self._check_version = check_version

    def connect(self) -> None:
        """Connect to the daemon.  Raises DaemonNotRunning, NotYourSocket, UnusablePath."""
        length = len(os.fsencode(self._path))
        if length > LONGEST_PATH:
            raise UnusablePath(
                "path_too_long",
                f"the socket {self._path} has {length} bytes in its path; Linux allows {LONGEST_PATH}",
                "set CARPOOL_HOME (or --home) to a shorter directory",
            )
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(os.fspath(self._path))
            check_owner(sock, self._path)
        except OSError as error:
            sock.close()
            raise self._explained(error) from None
        except NotYourSocket:
            sock.close()
            raise
        self.sock = sock

    def _explained(self, error: OSError) -> Exception:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return DaemonNotRunning(self._path)
        if error.errno in (errno.EACCES, errno.EPERM):
            return NotYourSocket(self._path, _owner(self._path))
        if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
            return DaemonNotAnswering(self._path, "does not accept connections")
        return UnusablePath("unusable_socket", f"cannot use the socket {self._path}: {error.strerror}")

    def ask(self, method: str, target: str, body: bytes | None = None) -> http.client.HTTPResponse:
        """Send a request and return the answer with its body unread.  Raises ClientError for a status from 400 on."""
        with self._breakdowns():
            headers = {REQUEST_HEADER: own_request_id()}
            headers |= {} if body is None else {"Content-Type": "application/json"}
            self.request(method, target, body, headers)
            answer = self.getresponse()
        self._check_protocol(answer)
        if answer.status >= 400:
            with self._breakdowns():
                raise _refusal(answer.status, answer.read())
        return answer

    def _check_protocol(self, answer: http.client.HTTPResponse) -> None:
        theirs = answer.headers.get(PROTOCOL_HEADER)
        if theirs is None or (self._check_version and theirs != str(API_VERSION)):
            self.close()
            raise VersionMismatch(self._path, theirs)

    def read(self, answer: http.client.HTTPResponse) -> bytes:
        """Return the whole body."""
        with self._breakdowns():
            return answer.read()

    def chunks(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the body piece by piece, as it arrives."""
        with self._breakdowns():
            while chunk := answer.read1(1 << 16):
                yield chunk

    def whole_lines(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the body as it arrives, in pieces of whole lines.  Only the last line may lack its end."""
        rest = b""
        for chunk in self.chunks(answer):
            whole, end, more = chunk.rpartition(b"\n")
            if end:
                yield rest + whole + end
                rest = more
            else:
                rest += more
        if rest:
            yield rest

    @contextmanager
    def _breakdowns(self) -> Iterator[None]:
        """Turn exceptions of sockets and http.client into errors with texts for users."""
        try:
            yield
        except TimeoutError:
            self.close()
            raise DaemonNotAnswering(self._path, f"did not answer for {self.timeout:g} s") from None
        except http.client.BadStatusLine as error:
            self.close()
            if isinstance(error, http.client.RemoteDisconnected):
                raise DaemonNotAnswering(self._path, "hung up without an answer") from None
            raise VersionMismatch(self._path, None) from None
        except (http.client.HTTPException, ConnectionError):
            self.close()
            raise DaemonNotAnswering(self._path, "hung up in the middle of an answer") from None


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        info = msgspec.json.decode(body, type=ErrorBody).error
    except msgspec.DecodeError:
        text = body[:200].decode(errors="replace").strip() or "no explanation"
        info = ErrorInfo("bad_answer", f"the daemon answered with status {status}: {text}", "see its daemon.log")
    return ApiError(status, info)


def _owner(path: Path) -> int | None:
    """Return the uid of the socket, or of the nearest directory above that can be read.

    None if that is this user, or if nothing can be read.
    """
    for candidate in (path, *path.parents):
        try:
            owner = candidate.stat().st_uid
        except OSError:
            continue
        return owner if owner != os.geteuid() else None
    return None
