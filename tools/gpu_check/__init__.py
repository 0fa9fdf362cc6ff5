"""What only a real GPU can show: ``make gpu-lease``, ``make gpu-check`` and ``make gpu-bench``.

Runs from a source tree with PyTorch's CUDA build and a C compiler; nothing is installed, and no pytest is needed.  What
the daemon imports besides lies in a folder that ``make gpu-packages`` fills on another machine (docs/cuda.md).  Checks
that need the driver only run in CI too, on the stub driver (``tests/gpu_check/test_checks.py``), and a lease on the
emulated GPU (``tests/gpu_check/test_rehearsals.py``).
"""
