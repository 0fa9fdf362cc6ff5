"""Train a small GPT on characters: one script of globals that ``--name=value`` overrides, batches out of a memory map.

Written after the usual single-file trainers of language models: no data loader, tied weights, a cosine schedule by
hand, gradients over several small batches, checkpoints of everything.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from ast import literal_eval
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import nets  # type: ignore[import-not-found]

out_dir = ""
eval_interval = 4
log_interval = 1
eval_iters = 2
init_from = "scratch"  # or "resume"
gradient_accumulation_steps = 2
batch_size = 8
block_size = 128
n_embd = 128
vocab_size = 1000
learning_rate = 1e-3
max_iters = 20
weight_decay = 1e-1
grad_clip = 1.0
warmup_iters = 4
min_lr = 1e-4
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
compile = False  # noqa: A001 - as scripts have it
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, int | float | bool | str)]
for argument in sys.argv[1:]:
    key, _, text = argument.removeprefix("--").partition("=")
    if key not in config_keys:
        raise ValueError(f"unknown setting: {key}")
    exec(f"{key} = {text!r}" if isinstance(globals()[key], str) else f"{key} = {literal_eval(text)!r}")
config = {k: globals()[k] for k in config_keys}

scratch = tempfile.TemporaryDirectory()
out_dir = out_dir or scratch.name
os.makedirs(out_dir, exist_ok=True)  # noqa: PTH103 - as scripts have it
tokens_per_iter = gradient_accumulation_steps * batch_size * block_size
print(f"tokens per iteration will be: {tokens_per_iter:,}")
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)

for split in ("train", "val"):
    np.random.default_rng(0).integers(0, vocab_size, 20_000, dtype=np.uint16).tofile(f"{out_dir}/{split}.bin")


def get_batch(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    data = np.memmap(f"{out_dir}/{split}.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nets.GPT(vocab_size, block_size, n_embd)
        self.body.token.weight = self.body.head[1].weight  # tied
        self.apply(self._init_weights)
        for name, parameter in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(8))
        print(f"number of parameters: {sum(p.numel() for p in self.parameters()) / 1e6:.2f}M")

    @staticmethod
    def _init_weights(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.body(idx)
        return logits, functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        parameters = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))


iter_num, best_val_loss = 0, 1e9
model = GPT()
checkpoint = None
if init_from == "resume":
    checkpoint = torch.load(f"{out_dir}/ckpt.pt", map_location=device)
    model.load_state_dict(checkpoint["model"])
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
model.to(device)
scaler = torch.amp.GradScaler(device_type, enabled=(dtype == "float16"))
optimizer = model.configure_optimizers()
if checkpoint is not None:
    optimizer.load_state_dict(checkpoint["optimizer"])
checkpoint = None
if compile:
    model = torch.compile(model)


@torch.no_grad()
def estimate_loss() -> dict[str, torch.Tensor]:
    out = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)  # noqa: N806
            with ctx:
                _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it: int) -> float:
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (max_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


ddp = int(os.environ.get("RANK", -1)) != -1
X, Y = get_batch("train")  # the very first batch
t0 = time.time()
raw_model = model.module if ddp else model
while True:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss or iter_num > 0:
            best_val_loss = losses["val"]
            checkpoint = {
                "model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num,
                "best_val_loss": best_val_loss, "config": config,
            }  # fmt: skip
            print(f"saving checkpoint to {out_dir}")
            torch.save(checkpoint, f"{out_dir}/ckpt.pt")
    for micro_step in range(gradient_accumulation_steps):  # noqa: B007
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")  # while the device works
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    t1 = time.time()
    if iter_num % log_interval == 0:
        lossf = loss.item() * gradient_accumulation_steps
        print(f"iter {iter_num}: loss {lossf:.4f}, time {(t1 - t0) * 1000:.2f}ms")
    t0 = t1
    iter_num += 1
    if iter_num >= max_iters:
        break
print(json.dumps({"loss": lossf}))
scratch.cleanup()
