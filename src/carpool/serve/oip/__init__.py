"""The Open Inference Protocol, version 2, as bytes: JSON and the binary tensor extension.  Pure: no I/O, no framework.

The lowest room: imports nothing else of Carpool.  `values` and `errors`, which workers import too, need the standard
library only.  Source: the "Predict Protocol, version 2" and its extension for binary tensor data, as KServe and Triton
publish them.
"""
