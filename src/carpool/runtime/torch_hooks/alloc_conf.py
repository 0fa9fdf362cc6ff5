"""How PyTorch's allocator is set up in a job on a CUDA device: its segments must be those that Carpool can move.

Not yet run on a GPU.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping

#: The second name is that of PyTorch 2.9 and later.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_EXPANDABLE = re.compile(r"(\bexpandable_segments\s*:\s*)True\b")


def fix_segments(environ: MutableMapping[str, str]) -> None:
    """Turn expandable segments off, with a warning: the allocator makes their memory itself, beside Carpool.

    Called right before torch is imported, so that it also finds what the script has set.
    """
    asked = [name for name in VARIABLES if _EXPANDABLE.search(environ.get(name, ""))]
    for name in asked:
        environ[name] = _EXPANDABLE.sub(r"\1False", environ[name])
    if asked:
        text = f"expandable_segments in {' and '.join(asked)} is turned off: Carpool cannot move such memory"
        print(f"carpool: warning: {text}", file=sys.stderr)
