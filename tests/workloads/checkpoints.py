"""Checkpoints written and read in the loop, in both file formats and through a buffer."""

import io

import torch
from common import batches, digest, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
model, data = mlp(), batches(5)
optimizer = optim.Adam(model.parameters(), lr=1e-3)
file = out.with_suffix(".pt")
seen = []
for step in range(30):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
    if step % 5 == 2:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    if step % 5 == 3:
        torch.save(model.state_dict(), file, _use_new_zipfile_serialization=False)
    if step % 5 == 4:
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        seen.append(digest(*torch.load(buffer).values()))
        continue
    if step % 5 != 0 and step > 1:
        loaded = torch.load(file)
        seen.append(digest(*loaded.get("model", loaded).values()))
model.load_state_dict(torch.load(file))
finish(out, weights=weights(model), seen=seen)
