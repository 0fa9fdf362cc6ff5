"""Current state of devices: memory, use of the processors, power, and processes that are not jobs.

Reading changes nothing: GPUs are read through NVML, the machine through ``/proc``.  `docs/telemetry.md` explains the
quantities.
"""
