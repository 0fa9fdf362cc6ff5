"""What governs the random numbers of an emulated device; prints what holds."""

import json

import torch
from torch.nn import functional

torch.cuda.init()
cpu_before = torch.get_rng_state()
torch.cuda.manual_seed(5)
first = torch.rand(8, device="cuda")
state = torch.cuda.get_rng_state()
second = torch.rand(8, device="cuda")
torch.cuda.set_rng_state(state)
again = torch.rand(8, device="cuda")
torch.cuda.manual_seed(5)
anew = torch.rand(8, device="cuda")
own = torch.Generator(device="cuda").manual_seed(5)
dropped = functional.dropout(torch.ones(10_000, device="cuda"), 0.3)
holds = {
    "a state brings its numbers back": torch.equal(second, again),
    "a seed brings its numbers back": torch.equal(first, anew),
    "a generator of one's own": torch.equal(torch.rand(8, generator=own, device="cuda"), first),
    "numbers differ": not torch.equal(first, second),
    "between 0 and 1": bool(((first >= 0) & (first < 1)).all()),
    "dropout": 0.28 < (dropped == 0).float().mean().item() < 0.32,
    "permutation": torch.randperm(50, device="cuda").sort()[0].equal(torch.arange(50, device="cuda")),
    "the CPU's own numbers": torch.equal(cpu_before, torch.get_rng_state()),
}
print(json.dumps(holds))
