"""Results in other threads, and under `torch.compile`; prints what holds, and how many graphs were compiled."""

import json
import threading

import torch
from torch._dynamo.utils import counters

found = []


def work(number):
    with torch.cuda.stream(torch.cuda.Stream()):
        found.extend((torch.full((100,), number, device="cuda") * 3).sum().item() == 300 * number for _ in range(20))


threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
values = torch.randn(64)
compiled = torch.compile(lambda tensor: (tensor * 2).sin().sum(), backend="aot_eager")
holds = {
    "threads": len(found) == 80 and all(found),
    "compile": torch.equal(compiled(values.cuda()).cpu(), (values * 2).sin().sum()),
}
print(json.dumps({**holds, "graphs": counters["stats"]["unique_graphs"]}))
