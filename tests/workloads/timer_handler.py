"""Trains while a handler in C touches a tensor thousands of times per second.

Arguments: the file for results, the handler's library, the number of iterations.
"""

import ctypes
import sys

import torch
from common import batches, finish, loss_of, mlp, start, weights
from torch import optim

out = start()
handler = ctypes.CDLL(sys.argv[2])
handler.begin.argtypes = [ctypes.c_void_p, ctypes.c_int]
handler.end.restype = ctypes.c_long
counters = torch.zeros(1024, dtype=torch.int64)
model, data = mlp(), batches(5)
optimizer = optim.Adam(model.parameters())
handler.begin(counters.data_ptr(), 150)
for step in range(int(sys.argv[3])):
    optimizer.zero_grad()
    loss_of(model, data[step % len(data)]).backward()
    optimizer.step()
count = handler.end()
finish(out, weights=weights(model), interrupted=count > 0, complete=int(counters.sum()) == 4 * count)
