"""What the emulated GPU does not know: ``unknown.py operator|kernel|size``."""

import sys

import torch

if sys.argv[1] == "operator":
    torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8, device="cuda")] * 3, dropout_p=0.5)
elif sys.argv[1] == "kernel":
    torch.cuda._sleep(1000)
else:
    torch.ones(4, device="cuda")[torch.tensor([9], device="cuda")]
torch.cuda.synchronize()
print("went on")
