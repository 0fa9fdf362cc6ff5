"""Dies by SIGKILL in the middle of an iteration, while it computes."""

import os
import signal

from common import batches, loss_of, mlp, start
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.Adam(model.parameters())
for step in range(40):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    model[2].weight.grad.mul_(0.5)
    if step == 12:
        out.write_text("dying\n")
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
