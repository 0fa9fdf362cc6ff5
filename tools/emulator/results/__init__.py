"""What the kernels of an emulated GPU would have computed: operators recomputed on the CPU, over the same bytes.

Lives inside of emulated processes and imports PyTorch.  Every operator that has a CUDA kernel is overridden below the
dispatcher (`install`): the original runs first, with PyTorch's own allocator, streams and launches of kernels that
compute nothing, and then the CPU's kernel writes what they should have written (`operator`).  The memory of an emulated
device is memory of the host, so nothing is copied (`aliases`).  While the CPU computes, the stream waits for a word
(`busy_stream`), so that the device is as busy as a real one would be.  CUDA graphs remember their operators and compute
them at each replay (`graphs`); random numbers are a function of the CUDA generator's seed and offset (`generators`).
"""

#: The exit status of a process whose results would be wrong.
WRONG = 86
