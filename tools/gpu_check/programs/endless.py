"""Trains for ever: ``endless.py``."""

from __future__ import annotations

import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
data = torch.randn(256, 1024, device="cuda")
while True:
    optimizer.zero_grad()
    net(data).square().mean().backward()
    optimizer.step()
