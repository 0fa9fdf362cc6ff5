"""HTTP over the daemon's Unix socket, with the standard library; every problem becomes a `ClientError`.

Each error says what is wrong and what to do about it.
"""

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
from carpool.protocol.display import user_name
from carpool.protocol.environment import REQUEST_HEADER, own_request_id


class ClientError(Exception):
    """Base.  ``info.code`` is stable, ``info.message`` and ``info.hint`` are for people."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.info = ErrorInfo(code=code, message=message, hint=hint)


class DaemonNotRunning(ClientError):
    """Error: no process listens on the socket."""

    def __init__(self, socket: Path) -> None:
        super().__init__(
            "not_running",
            f"no daemon is running (no answer at {socket})",
            "it starts with the first `carpool submit`, or with `carpool up`",
        )


class DaemonNotAnswering(ClientError):
    """The daemon accepted the connection and then said nothing for too long, or hung up."""

    def __init__(self, socket: Path, what: str) -> None:
        super().__init__(
            "not_answering",
            f"the daemon at {socket} {what}",
            f"see {socket.parent / 'daemon.log'}; `carpool down` and `carpool up` restart it, jobs go on meanwhile",
        )


class NotYourSocket(ClientError):
    """The socket is another user's."""

    def __init__(self, socket: Path, owner: int | None) -> None:
        whose = "another user" if owner is None else f"user {user_name(owner)}"
        super().__init__(
            "not_your_socket",
            f"the daemon at {socket} belongs to {whose}",
            "set CARPOOL_HOME (or --home) to a directory of your own",
        )


class VersionMismatch(ClientError):
    """The daemon speaks another version of the protocol, or is no Carpool daemon."""

    def __init__(self, socket: Path, theirs: str | None) -> None:
        message = (
            f"the program at {socket} is not a Carpool daemon"
            if theirs is None
            else f"the daemon at {socket} speaks protocol version {theirs}, this client version {API_VERSION}"
        )
        hint = (
            "set CARPOOL_HOME to another directory"
            if theirs is None
            else ("restart it with this version: `carpool down`, then `carpool up` (jobs go on meanwhile)")
        )
        super().__init__("version_mismatch", message, hint)


class UnusablePath(ClientError):
    """The socket's path cannot be used at all."""


class ApiError(ClientError):
    """The daemon refused the request.  ``status`` is the HTTP status."""

    def __init__(self, status: int, info: ErrorInfo) -> None:
        super().__init__(info.code, info.message, info.hint)
        self.status = status


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
