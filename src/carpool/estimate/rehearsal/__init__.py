"""The `faketensor` estimator's rehearsal: the script runs over fake tensors, and its requests are recorded.

Loads PyTorch; runs in the job's interpreter.
"""
