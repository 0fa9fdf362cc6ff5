"""A job's attach socket (the file ``door``), through which each process of the job gets a channel of its own.

Launchers start programs without the descriptors that they have inherited.  The connection is the channel: the shim's
end goes to the daemon.  Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct

_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid
WAITING = 64
OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class AttachSocket:
    """A listening socket in the job's directory, for the job's owner.

    Raises OSError if no socket can be made there.
    """

    def __init__(self, directory: str) -> None:
        self.jammed = False  # a waiting process cannot be admitted at present
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        # A path through the directory's descriptor: socket addresses are limited to 107 bytes.
        self._place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink("door", dir_fd=self._place)
            self._socket.bind(f"/proc/self/fd/{self._place}/door")
            os.chmod("door", 0o600, dir_fd=self._place)
            self._socket.listen(WAITING)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the listening socket's descriptor."""
        return self._socket.fileno()

    def admit(self) -> int | None:
        """Return this side's end of the next waiting process's channel; None if none waits, or it is another user's."""
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            self.jammed = error.errno in OUT_OF
            return None
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != os.geteuid():
            connection.close()
            return None
        return connection.detach()

    def close(self) -> None:
        """Admit no more processes.  The daemon may have removed the directory already."""
        with contextlib.suppress(OSError):
            os.unlink("door", dir_fd=self._place)
        os.close(self._place)
        self._socket.close()
