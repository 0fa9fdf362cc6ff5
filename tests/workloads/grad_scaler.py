"""A gradient scaler that skips a step: one batch gives infinite gradients."""

import torch
from common import DEVICE, batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5, rows=64)  # many processors compute slowly in bfloat16
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler(DEVICE.type, init_scale=256.0)
losses, scales = [], []
for step in range(40):
    optimizer.zero_grad()
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        loss = loss_of(model, data[step % len(data)])
    scaler.scale(loss * (float("inf") if step in (0, 10) else 1.0)).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    scales.append(scaler.get_scale())
assert scales[0] == 128.0 and scales[-1] == 64.0, "two steps were to be skipped"
finish(out, weights=weights(model), losses=losses, scales=scales)
