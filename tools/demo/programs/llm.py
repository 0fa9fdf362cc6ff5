"""An engine: a small language model behind HTTP, which streams the tokens of its answers as events.

Arguments: its port, MiB of its cache, and ``worker`` if a process that `multiprocessing` spawns computes.  As engines
do, it makes its cache after a first forward pass, and for as long as it lives.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import get_context

import torch
from torch import nn
from torch.nn import functional

DEVICE = torch.device(os.environ.get("DEVICE", "cpu"))
WORDS, WIDTH, HEADS, LAYERS, LONGEST, TOKENS = 256, 128, 4, 4, 320, 24


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, cache: torch.Tensor, at: int) -> torch.Tensor:
        query, *new = self.mixed(x).view(-1, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        cache[:, :, at : at + len(x)] = torch.stack(new)
        key, value = cache[:, :, : at + len(x)]
        seen = functional.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=len(x) > 1)[0]
        x = x + self.out(seen.transpose(0, 1).reshape(-1, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor, cache: torch.Tensor, at: int) -> torch.Tensor:
        x = self.words(tokens) + self.places.weight[at : at + len(tokens)]
        for layer, own in zip(self.layers, cache, strict=True):
            x = layer(x, own, at)
        return (x[-1] @ self.words.weight.T).argmax()


def new_cache(slots: int) -> torch.Tensor:
    return torch.zeros(slots, LAYERS, 2, HEADS, LONGEST, WIDTH // HEADS, device=DEVICE)


class Answers:
    """Answers prompts, one after the other; the slots of its cache are used in turn."""

    def __init__(self, mib: int) -> None:
        torch.manual_seed(0)
        self.model, self.asked = Model().to(DEVICE).eval(), 0
        first = new_cache(1)
        with torch.inference_mode():
            self.model(torch.zeros(4, dtype=torch.long, device=DEVICE), first[0], 0)
            self.cache = new_cache(max(1, (mib << 20) // first.nbytes))

    @torch.inference_mode()
    def tokens(self, prompt: str, count: int = TOKENS) -> Iterator[int]:
        tokens, at = torch.tensor([*prompt.encode()], device=DEVICE), 0
        slot, self.asked = self.cache[self.asked % len(self.cache)], self.asked + 1
        for _ in range(count):
            token = self.model(tokens, slot, at)
            yield int(token)
            tokens, at = token[None], at + len(tokens)


def serve(port: int, mib: int) -> None:
    answers = Answers(mib)

    class Engine(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            """The answer ends with its connection, as HTTP/1.0 has it."""
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for token in answers.tokens(asked["prompt"], asked.get("max_tokens", TOKENS)):
                self.wfile.write(f"data: {token}\n\n".encode())

    HTTPServer(("127.0.0.1", port), Engine).serve_forever()


if __name__ == "__main__":
    port, mib, *worker = sys.argv[1:]
    if worker:
        process = get_context("spawn").Process(target=serve, args=(int(port), int(mib)))
        process.start()
        process.join()
    else:
        serve(int(port), int(mib))
