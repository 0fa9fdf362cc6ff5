"""CUDA graphs compute at each replay; prints what holds."""

import json

import torch

given, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    computed = given * 2 + 1
    drawn = torch.rand(4, device="cuda")
    total = computed.clone()
    total.add_(drawn)
graph.replay()
first, first_drawn = computed.clone(), drawn.clone()
given.fill_(5)
graph.replay()
model = torch.nn.Linear(4, 4).cuda()
expected = model(given).detach()
graphed = torch.cuda.make_graphed_callables(model, (torch.zeros(4, device="cuda"),))
holds = {
    "first replay": first.tolist() == [3.0] * 4,
    "changed input": computed.tolist() == [11.0] * 4,
    "random numbers in the graph": not torch.equal(first_drawn, drawn),
    "operators in their order": torch.equal(total, computed + drawn),
    "graphed callables": torch.equal(graphed(given), expected),
}
print(json.dumps(holds))
