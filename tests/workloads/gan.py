"""Two models, two optimizers, two steps per iteration."""

import torch
from common import DEVICE, ROWS, again, finish, start, weights
from torch import nn, optim

out = start()
generator = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
critic = nn.Sequential(nn.Linear(64, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
generator, critic = generator.to(DEVICE), critic.to(DEVICE)
optimizer_g = optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_c = optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
judge = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(ROWS, 1, device=DEVICE), torch.zeros(ROWS, 1, device=DEVICE)
losses = []
for _ in range(30):
    again()
    real = torch.randn(ROWS, 64).to(DEVICE) * 0.5 + 1
    fake = generator(torch.randn(ROWS, 32).to(DEVICE))

    optimizer_c.zero_grad()
    loss_c = judge(critic(real), ones) + judge(critic(fake.detach()), zeros)
    loss_c.backward()
    optimizer_c.step()

    optimizer_g.zero_grad()
    loss_g = judge(critic(fake), ones)
    loss_g.backward()
    optimizer_g.step()
    losses.append((loss_c.item(), loss_g.item()))
finish(out, weights=weights(generator, critic), losses=losses)
