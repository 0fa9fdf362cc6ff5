"""Asks for more memory than there is, catches the error, and trains on with less."""

import torch
from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

MIB = 1 << 20

out = start()
model, data = mlp(), batches(5)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
hoard: list[torch.Tensor] = []
errors = []
for step in range(40):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    if step == 10:
        try:
            while len(hoard) < 256:  # up to 4 GiB
                hoard.append(torch.full((16 * MIB // 4,), float(len(hoard))))
        except RuntimeError as error:  # torch.OutOfMemoryError is one, too
            errors.append(str(error))
            intact = all(bool((piece == number).all()) for number, piece in enumerate(hoard))
            hoarded = len(hoard)
            del hoard[2:]
finish(out, weights=weights(model), errors=errors, hoarded_mib=16 * hoarded, intact=intact)
