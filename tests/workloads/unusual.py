"""Tensors made and used in less usual ways: views, in-place growth, float64, sparse, pinned on disk, shared memory."""

import torch
from common import DEVICE, batches, digest, finish, loss_of, mlp, start, weights
from torch import nn, optim

out = start()
model, data = mlp(), batches(5)
table = nn.Embedding(2000, 64, sparse=True)  # a table that is too large for a device stays with the CPU
dense = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sparse = optim.SparseAdam(table.parameters(), lr=1e-2)
shared = torch.zeros(256, 64).to(DEVICE).share_memory_()
mapped = torch.from_file(str(out.with_suffix(".map")), shared=True, size=64 * 1024)
double = torch.randn(200, 200, dtype=torch.float64).to(DEVICE)
grown = torch.empty(0, device=DEVICE)
for step in range(40):
    dense.zero_grad()
    sparse.zero_grad()
    rows = torch.randint(0, 2000, (512,))
    loss = loss_of(model, (data[step % len(data)][0] + table(rows).to(DEVICE), data[step % len(data)][1]))
    loss.backward()
    dense.step()
    sparse.step()
    with torch.no_grad():
        shared += model[0].weight
        mapped[:65536] += model[2].weight.flatten()[:65536].cpu()
        double = torch.linalg.qr(double)[0] + 0.01 * double
        grown.resize_(grown.numel() + 20_000)[-20_000:] = model[2].weight.flatten()[:20_000]
        model[2].weight.t().add_(1e-6)
finish(out, weights=weights(model, table), rest=digest(shared, mapped, double, grown))
