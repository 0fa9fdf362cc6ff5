"""In place of `torch._meta_registrations`: only what PyTorch itself needs of all that this one imports."""

import torch
from torch._opaque_base import OpaqueBaseMeta

torch._C._set_generator_metaclass(OpaqueBaseMeta)  # before the first torch.Generator
