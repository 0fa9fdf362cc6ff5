"""Computations that are done on the device and on the CPU; prints which of them differ, and how many there are.

All of them are the same in all bits but those in CLOSE.
"""

import json

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.backends.mkldnn.enabled = False
IMAGES, VALUES, FILTERS = torch.randn(4, 3, 16, 16), torch.randn(64), torch.randn(8, 3, 3, 3)
MATRIX = torch.randn(5, 5)
MATRIX = MATRIX @ MATRIX.T + 5 * torch.eye(5)
SEQUENCE = torch.arange(64.0).reshape(1, 2, 4, 8) / 64


def trained(model, inputs, device, steps=3, optimizer=torch.optim.SGD, **options):
    """Weights, buffers and losses after a few steps."""
    torch.manual_seed(0)
    made = model().to(device)
    updates = optimizer(made.parameters(), lr=0.1, **options)
    losses = []
    for _ in range(steps):
        loss = made(inputs.to(device)).pow(2).mean()
        updates.zero_grad()
        loss.backward()
        updates.step()
        losses.append(loss.detach())
    return [*losses, *made.state_dict().values()]


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def perceptron():
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def encoder():
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)


def assigned(device):
    values = VALUES.to(device).clone()
    values[values > 0] = 5.0
    values[torch.tensor([1, 2, 3], device=device)] = 7
    return values


def frozen(device):
    """With the statistics of its own, not the batch's: in inference, and in the backward pass beside it."""
    torch.manual_seed(0)
    model = convolutions().to(device).eval()
    with torch.inference_mode():
        inferred = model(IMAGES.to(device)).clone()
    model(IMAGES.to(device)).sum().backward()
    return [inferred, *(weight.grad for weight in model.parameters())]


def attention(device):
    query = SEQUENCE.clone().to(device).requires_grad_()
    output = functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    output.sum().backward()
    return [output.detach(), query.grad]


def flash(device, is_causal, kind=torch.half):
    """PyTorch takes the kernels of flash attention for half precision only; without them it ends here."""
    tensors = [(SEQUENCE.to(device, kind) * factor).requires_grad_() for factor in (1, 2, 3)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        output = functional.scaled_dot_product_attention(*tensors, is_causal=is_causal)
    assert "FlashAttention" in output.grad_fn.name(), output.grad_fn.name()
    output.square().sum().backward()
    return [output.detach(), *(tensor.grad for tensor in tensors)]


def recurrent(cells, device):
    """Outputs, the last states and all gradients, of two layers over six steps."""
    torch.manual_seed(0)
    layers = cells(8, 12, num_layers=2).to(device)
    inputs = torch.randn(6, 3, 8).to(device).requires_grad_()
    output, states = layers(inputs)
    states = [*states] if isinstance(states, tuple) else [states]
    sum(each.square().sum() for each in (output, *states)).backward()
    found = [output, *states, inputs.grad, *(weight.grad for weight in layers.parameters())]
    return [each.detach() for each in found]


def steps_of_a_cell(device):
    torch.manual_seed(0)
    cell, state, found = nn.LSTMCell(8, 12).to(device), None, []
    for inputs in torch.randn(6, 3, 8).to(device):
        state = cell(inputs, state)
        found += [each.detach() for each in state]
    return found


def log_sigmoids(device):
    values = (VALUES * 9).to(device).requires_grad_()
    output = functional.logsigmoid(values)
    output.square().sum().backward()
    return [output.detach(), values.grad]


def softmax_of_halves(function, device):
    """In single precision: what autocast makes of it."""
    values = VALUES.to(device, torch.half).requires_grad_()
    output = function(values, 0, dtype=torch.float)
    output.square().sum().backward()
    with torch.no_grad():
        into = function(values, 0, dtype=torch.float)
    return [output.detach(), into, values.grad]


def bags(device):
    places, starts = torch.tensor([1, 2, 4, 5], device=device), torch.tensor([0, 2], device=device)
    table = torch.arange(30.0).reshape(10, 3).to(device).requires_grad_()
    output = functional.embedding_bag(places, table, starts, mode="mean")
    output.sum().backward()
    return [output.detach(), table.grad]


CASES = {
    "nonzero": lambda device: torch.nonzero(VALUES.to(device) > 0),
    "boolean index": lambda device: VALUES.to(device)[VALUES.to(device) > 0],
    "assignment by index": assigned,
    "unique": lambda device: torch.unique((VALUES * 3).to(device).int()),
    "bincount": lambda device: torch.bincount((VALUES.abs() * 3).to(device).long()),
    "convolution": lambda device: functional.conv2d(IMAGES.to(device), FILTERS.to(device), padding=1),
    "attention": attention,
    "flash attention": lambda device: flash(device, is_causal=False),
    "causal flash attention": lambda device: flash(device, is_causal=True),
    "flash attention of bfloat16": lambda device: flash(device, is_causal=True, kind=torch.bfloat16),
    "LSTM": lambda device: recurrent(nn.LSTM, device),
    "GRU": lambda device: recurrent(nn.GRU, device),
    "steps of an LSTM's cell": steps_of_a_cell,
    "log_sigmoid": log_sigmoids,
    "softmax of halves": lambda device: softmax_of_halves(torch.softmax, device),
    "log_softmax of halves": lambda device: softmax_of_halves(torch.log_softmax, device),
    "embedding bag": bags,
    "cholesky": lambda device: torch.linalg.cholesky(MATRIX.to(device)),
    "eigh": lambda device: list(torch.linalg.eigh(MATRIX.to(device))),
    "svd": lambda device: list(torch.linalg.svd(MATRIX.to(device))),
    "solve": lambda device: torch.linalg.solve(MATRIX.to(device), torch.ones(5, device=device)),
    "fft": lambda device: torch.view_as_real(torch.fft.rfft(VALUES.to(device))),
    "sort": lambda device: list(torch.sort(VALUES.to(device))),
    "topk": lambda device: list(torch.topk(VALUES.to(device), 5)),
    "cumsum": lambda device: VALUES.to(device).cumsum(0),
    "cat": lambda device: torch.cat([VALUES.to(device), VALUES.to(device) * 2]),
    "numbers beside tensors": lambda device: torch.arange(10, device=device) * 2.5 + torch.ones((), device=device),
    "where of numbers": lambda device: torch.where(VALUES.to(device) > 0, 1.0, 0.0),
    "half": lambda device: (VALUES.to(device) * 2).half().float(),
    "equal": lambda device: torch.tensor([torch.equal(VALUES.to(device), VALUES.to(device) + 1)]),
    "perceptron, SGD": lambda device: trained(perceptron, torch.randn(8, 16), device, momentum=0.9),
    "perceptron, AdamW": lambda device: trained(
        perceptron, torch.randn(8, 16), device, optimizer=torch.optim.AdamW, foreach=False
    ),
    "perceptron, fused AdamW": lambda device: trained(
        perceptron, torch.randn(8, 16), device, optimizer=torch.optim.AdamW, fused=True
    ),
    "convolutions": lambda device: trained(convolutions, IMAGES, device),
    "frozen convolutions": frozen,
    "encoder": lambda device: trained(encoder, torch.randn(2, 4, 16), device),
}


#: The CPU multiplies the inputs of all steps at once, and has no kernel for the backward pass of a whole cell.
CLOSE = ("LSTM", "GRU")


def parts(value):
    return [each.cpu() for each in (value if isinstance(value, list) else [value])]


def alike(one, other, exactly):
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one, other) if exactly else torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def same(name, case):
    found = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(3)
        found.append(parts(case(device)))
    return len(found[0]) == len(found[1]) and all(
        alike(one, other, name not in CLOSE) for one, other in zip(*found, strict=True)
    )


different = [name for name, case in CASES.items() if not same(name, case)]
print(json.dumps({"cases": len(CASES), "different": different}))
