"""Trains on what an engine answers, as reinforcement learning does: an answer, a step of training, and so on.

Arguments, after the file for results: the engine's address, and a number of steps.
"""

import json
import sys
import urllib.request

import torch
from common import CLASSES, DEVICE, INPUTS, finish, loss_of, mlp, start, weights
from torch import optim


def rollout(url: str, prompt: str) -> list[int]:
    body = json.dumps({"model": "llm", "prompt": prompt, "stream": True}).encode()
    asked = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=200) as answer:
        return [int(line.split()[1]) for line in answer if line.strip()]


out, (url, steps) = start(), sys.argv[2:4]
model = mlp()
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
answers = []
for step in range(int(steps)):
    answers.append(tokens := rollout(url, f"step {step}: {answers[-1][:4] if answers else 'begin'}"))
    seen = torch.tensor(tokens, dtype=torch.float, device=DEVICE)
    batch = torch.outer(seen / 256, torch.linspace(0, 1, INPUTS, device=DEVICE)), seen.long() % CLASSES
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
finish(out, answers=answers, weights=weights(model))
