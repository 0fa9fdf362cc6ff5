"""Hooks inside a job that has imported PyTorch: they mark iterations and report memory.

Standard library and torch only; imported under a private name, see `runtime/site`.
"""
