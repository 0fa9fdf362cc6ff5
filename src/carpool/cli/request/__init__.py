"""Conversion of options and files to the requests that `submit`, `run`, `estimate` and `model` send.

Everything that can be found wrong without the daemon is found here: commands that do not exist, job files, parameters.
Estimators run here too, in a process of the job's interpreter.  May import `base`, `render` and the protocol.
"""
