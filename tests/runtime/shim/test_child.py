"""What the main process of a job begins with."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from carpool.runtime.shim.child import spawn
from carpool.runtime.shim.streams import Streams

SAYS = "ulimit -S -n; ulimit -H -n; ulimit -c; grep -E '^Sig(Blk|Ign)' /proc/self/status"

#: Signals 32 and 33, which no program may change: whoever started the tests may have ignored them.
OF_THE_C_LIBRARY = 3 << 31


def test_limits_of_the_user_and_no_signals_of_the_daemon(tmp_path: Path) -> None:
    """The shim itself has other limits: it keeps the job's descriptors."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    job_fd, log = os.dup(0), tmp_path / "log"
    least, most = job_fd + 64, job_fd + 80  # this process has many open after other tests
    try:
        streams = Streams(str(log), None, None, first=True)
        pid = spawn(
            ["sh", "-c", SAYS],
            "/",
            dict(os.environ),
            job_fd,
            streams,
            cores=False,
            limits={resource.RLIMIT_NOFILE: (least, most)},
        )
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR1, before)
        os.close(job_fd)
    soft, hard, core, *signals = log.read_text().splitlines()
    assert (soft, hard, core) == (str(least), str(most), "0"), "cores have less than a block"
    assert [int(line.split()[1], 16) & ~OF_THE_C_LIBRARY for line in signals] == [0, 0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > least
