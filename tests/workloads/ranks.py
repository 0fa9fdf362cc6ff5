"""Data-parallel training by gloo: one process per rank, as torchrun starts them; the first rank writes the results."""

import torch
import torch.distributed as dist
from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model, data = mlp(), batches(6)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(12):
    optimizer.zero_grad()
    loss = loss_of(model, data[(step * world + rank) % len(data)])
    loss.backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(world)
    optimizer.step()
    losses.append(loss.item())
if rank == 0:
    finish(out, weights=weights(model), losses=losses, world=world, memory=torch.tensor(losses).sum().item())
dist.barrier()
dist.destroy_process_group()
