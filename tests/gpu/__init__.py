"""What only a real GPU can show: ``make gpu-check`` and ``make gpu-bench``.

Runs from a source tree with PyTorch, numpy, cuda-bindings and nvidia-ml-py; nothing has to be installed, and no pytest
is needed.  Checks that need the driver only run in CI too, on the stub driver (``tests/gpu/test_checks.py``).
"""
