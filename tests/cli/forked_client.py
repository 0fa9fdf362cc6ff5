"""A ``carpool`` as a process, which hands the command to the one that forks (`forked.py`) and ends as it has ended.

``python -IS forked_client.py SOCKET ARGUMENTS...`` takes a tenth of the processor time of the command: it imports
little beside what the interpreter has built in.
"""

import marshal
import os
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket

server = socket(AF_UNIX)
server.connect(sys.argv[1])
descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
server.sendmsg([b"!"], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
server.sendall(marshal.dumps((sys.argv[2:], dict(os.environ), os.getcwd())))  # noqa: PTH109 - pathlib is not little
answers = open(server.fileno())  # noqa: SIM115 - it lives as long as this process
pid = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(answers.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if code != -signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
