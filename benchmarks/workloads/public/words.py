"""Train a recurrent language model: a long text in columns, the best weights kept and loaded at the end."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

WORDS, LENGTH, BATCH, EPOCHS = 2000, 64, 16, 4
torch.manual_seed(1111)
device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


def batchify(text: torch.Tensor, columns: int) -> torch.Tensor:
    rows = text.size(0) // columns
    return text.narrow(0, 0, rows * columns).view(columns, -1).contiguous().to(device)


train_data = batchify(torch.randint(0, WORDS, (BATCH * (5 * LENGTH + 1),)), BATCH)
val_data = batchify(torch.randint(0, WORDS, (BATCH * (2 * LENGTH + 1),)), BATCH)
model = nets.LSTM(WORDS).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)


def get_batch(source: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    length = min(LENGTH, source.size(1) - 1 - start)
    return source[:, start : start + length], source[:, start + 1 : start + 1 + length].reshape(-1)


def evaluate(source: torch.Tensor) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, source.size(1) - 1, LENGTH):
            data, targets = get_batch(source, start)
            total += data.size(1) * criterion(model(data).view(-1, WORDS), targets).item()
    return total / (source.size(1) - 1)


def train(epoch: int) -> None:
    model.train()
    total, begin = 0.0, time.time()
    for number, start in enumerate(range(0, train_data.size(1) - 1, LENGTH)):
        data, targets = get_batch(train_data, start)
        model.zero_grad()
        loss = criterion(model(data).view(-1, WORDS), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        total += loss.item()
        mean = total / (number + 1)
        ms = (time.time() - begin) * 1000
        print(f"| epoch {epoch:3d} | {number:5d} | ms {ms:5.2f} | loss {mean:5.2f} | ppl {math.exp(mean):8.2f}")


best: float | None = None
with tempfile.TemporaryDirectory() as directory:
    for epoch in range(1, EPOCHS + 1):
        train(epoch)
        found = evaluate(val_data)
        if not best or found < best:
            with open(f"{directory}/model.pt", "wb") as file:
                torch.save(model.state_dict(), file)
            best = found
        else:
            for group in optimizer.param_groups:
                group["lr"] /= 4.0
    with open(f"{directory}/model.pt", "rb") as weights:
        model.load_state_dict(torch.load(weights))
print(json.dumps({"loss": evaluate(val_data)}))
