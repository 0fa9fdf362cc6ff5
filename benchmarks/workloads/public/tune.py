"""Tune a language encoder: a collate function, decay for some parameters, linear warm-up, metrics out of numpy."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
logger = logging.getLogger(__name__)
WORDS, LENGTH, BATCH, EPOCHS = 2000, 64, 16, 4
Sentence = dict[str, list[int]]


def sentences(count: int) -> list[Sentence]:
    numbers = np.random.default_rng(0).integers(0, WORDS, (count, LENGTH))
    return [{"input_ids": row.tolist(), "labels": row[::-1].tolist()} for row in numbers]


def collate(batch: list[Sentence]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor([example[name] for example in batch], dtype=torch.long) for name in batch[0]}


def optimizer_for(model: nn.Module, lr: float) -> torch.optim.AdamW:
    plain = ("bias", "norm1.weight", "norm2.weight")
    named = list(model.named_parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": 0.01},
            {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
        ],
        lr=lr, eps=1e-8,
    )  # fmt: skip


def evaluate(model: nn.Module, loader: DataLoader[Sentence], device: torch.device) -> dict[str, float]:
    losses, predictions, labels = [], [], []
    model.eval()
    for batch in loader:
        batch = {name: value.to(device) for name, value in batch.items()}
        with torch.no_grad():
            logits = model(batch["input_ids"])
        losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).item())
        predictions.append(logits.argmax(-1).cpu().numpy())
        labels.append(batch["labels"].detach().cpu().numpy())
    same = np.concatenate(predictions) == np.concatenate(labels)
    return {"loss": float(np.mean(losses)), "accuracy": float(same.mean())}


def main() -> None:
    torch.manual_seed(42)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    model = nets.BERT(WORDS).to(device)
    training = DataLoader(sentences(5 * BATCH), BATCH, shuffle=True, collate_fn=collate, drop_last=True)
    testing = DataLoader(sentences(2 * BATCH), BATCH, collate_fn=collate)
    optimizer, total = optimizer_for(model, 5e-5), len(training) * EPOCHS
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3) * (1 - step / total))
    best, waited = float("inf"), 0
    path = Path(tempfile.mkdtemp()) / "model.bin"
    for epoch in range(EPOCHS):
        model.train()
        running: list[float] = []
        for step, batch in enumerate(training):
            batch = {name: value.to(device) for name, value in batch.items()}
            logits = model(batch["input_ids"])
            loss = nn.functional.cross_entropy(logits.view(-1, WORDS), batch["labels"].view(-1))
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running.append(loss.item())
            logger.info(
                "epoch %d step %d loss %.4f norm %.2f lr %.2e", epoch, step, loss, norm, scheduler.get_last_lr()[0]
            )
        result = evaluate(model, testing, device)
        logger.info(f"mean {np.mean(running):.4f}, {result}")
        if result["loss"] < best:
            best, waited = result["loss"], 0
            torch.save({"model_state_dict": model.state_dict(), "epoch": epoch, "loss": loss}, path)
        else:
            waited += 1
        if waited > EPOCHS:
            break
    model.load_state_dict(torch.load(path, map_location=device)["model_state_dict"])
    path.unlink()
    path.parent.rmdir()
    print(f'{{"loss": {best:.4f}}}')


if __name__ == "__main__":
    main()
