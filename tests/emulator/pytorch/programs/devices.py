"""Work on a device other than the current one comes in the order of its stream; prints what holds."""

import json

import torch

values = torch.arange(1000).pin_memory()
late = torch.empty(1000, dtype=torch.int64, device="cuda:1")
late.fill_(7).add_(1)  # with EMULATOR_KERNEL_US the copy comes a while after the kernel
late.copy_(values, non_blocking=True)
doubled = late * 2
holds = {
    "current": torch.cuda.current_device() == 0,
    "in order": torch.equal(doubled.cpu(), values * 2),
    "current afterwards": torch.cuda.current_device() == 0,
}
print(json.dumps(holds))
