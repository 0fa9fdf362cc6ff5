"""Signals and the trap (second argument): faulthandler, the script's own SIGSEGV handler, a blocked SIGSEGV."""

import faulthandler
import signal
import sys

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out, manner = start(), sys.argv[2]
calls = []


def install() -> None:
    if manner == "faulthandler":
        faulthandler.enable()
    elif manner == "handler":
        signal.signal(signal.SIGSEGV, lambda *_: calls.append("segv"))
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGSEGV, signal.SIGBUS, signal.SIGUSR1})


model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(40):
    if step == 5:
        install()
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
if manner == "handler":
    # What it installed is what it sees, and a signal from elsewhere reaches it.
    assert callable(signal.getsignal(signal.SIGSEGV))
    signal.raise_signal(signal.SIGSEGV)
    assert calls == ["segv"], calls
elif manner == "faulthandler":
    assert faulthandler.is_enabled()
finish(out, weights=weights(model), calls=calls)
