"""What runs inside a job once it has imported PyTorch: hooks that mark iterations and report memory.

Standard library and torch only; imported under a private name, see `runtime/site`.
"""
