"""What devices do right now: memory, use of the processors, power, and who else is there.

It only looks: through NVML at GPUs, through ``/proc`` at the machine.  `docs/telemetry.md` explains the quantities.
"""
