"""An engine: a small language model that answers prompts on a socket, token by token, until a prompt is ``end``.

Arguments: the path of the socket, MiB of its cache, and ``worker`` if a process that `multiprocessing` spawns computes.
A request is a line; the answer is a line for each of 24
tokens, and an empty one.  As engines do, it makes its cache after a first forward pass, and for as long as it lives.
"""

import socket
import sys
from multiprocessing import get_context

import torch
from common import DEVICE, finish, start
from torch import nn
from torch.nn import functional

WORDS, WIDTH, HEADS, LAYERS, LONGEST, TOKENS = 256, 128, 4, 4, 96, 24


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


@torch.inference_mode()
def answers(prompts: socket.socket, mib: int) -> int:
    """Answer prompts; the slots of the cache are used in turn.  Return how many there were."""
    model = Model().to(DEVICE).eval()
    first = new_cache(1)
    model(torch.zeros(4, dtype=torch.long, device=DEVICE), first[0], 0)
    cache = new_cache(max(1, (mib << 20) // first.nbytes))
    asked = 0
    while True:
        client, _ = prompts.accept()
        with client, client.makefile("rw") as lines:
            for line in lines:
                if line == "end\n":
                    return asked
                tokens, at = torch.tensor([*line.encode()], device=DEVICE), 0
                for _ in range(TOKENS):
                    token = model(tokens, cache[asked % len(cache)], at)
                    lines.write(f"{int(token)}\n")
                    lines.flush()
                    tokens, at = token[None], at + len(tokens)
                asked += 1
                lines.write("\n")
                lines.flush()


def serve(path: str, mib: int) -> int:
    with socket.socket(socket.AF_UNIX) as prompts:
        prompts.bind(path)
        prompts.listen()
        return answers(prompts, mib)


def serve_as_worker(path: str, mib: int) -> None:
    torch.manual_seed(0)
    serve(path, mib)


if __name__ == "__main__":
    out, (path, mib, *worker) = start(), sys.argv[2:]
    if worker:
        process = get_context("spawn").Process(target=serve_as_worker, args=(path, int(mib)))
        process.start()
        process.join()
        finish(out, code=process.exitcode)
    else:
        finish(out, asked=serve(path, int(mib)))
