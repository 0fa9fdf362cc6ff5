"""Forked children look at their parent's tensors after the parent has gone on."""

import os

from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
seen, children = [], []


def watch() -> tuple[int, int, int]:
    """Fork a child that, when told, says what it sees: (pid, to tell it, to hear it)."""
    hear, answer = os.pipe()
    listen, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        os.read(listen, 1)
        os.write(answer, weights(model).encode())
        os._exit(0)
    os.close(answer)
    os.close(listen)
    return pid, tell, hear


for step in range(36):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    if step % 6 == 2:
        now = weights(model)
        children = [(*watch(), now) for _ in range(2)]
    if step % 6 == 4:  # two iterations later
        for pid, tell, hear, then in children:
            os.write(tell, b"!")
            answer = os.read(hear, 64).decode()
            assert answer == then, f"step {step}: the child saw something else than its parent at the fork"
            seen.append(answer)
            assert os.waitpid(pid, 0)[1] == 0
            os.close(tell)
            os.close(hear)
finish(out, weights=weights(model), seen=seen)
