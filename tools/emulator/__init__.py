"""An emulated GPU: a driver, a CUDA runtime and what else PyTorch's CUDA build asks for, none of them NVIDIA's.

For tests, and for everybody who develops against Carpool without a GPU (`README.md`).  Nothing of `src/` imports this
room.  Standard library only, but for what runs inside of emulated processes, where PyTorch is.
"""
