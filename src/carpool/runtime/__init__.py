"""Code that runs inside a job: the launcher, the shim, the hooks into PyTorch and the interface to libcarpool.

Everything here is loaded by the user's own Python, of any version from 3.9 on, whose environment need not contain
Carpool: only the standard library is imported, and inside this package only by relative imports.
"""
