"""The parts of a simulation: trace jobs, options, results, the agenda of events.

Values only; imports the core's vocabulary.
"""
