"""What devices do right now: memory, use of the processors, power, and processes that are no jobs.

Reading changes nothing: GPUs are read through NVML, the machine through ``/proc``.
`docs/telemetry.md` explains the quantities.
"""
