"""Building, measuring and storing a model before it is served, in a process of its own.

`subprocess` is the front's side and loads no framework; `__main__` and `prepare` run in the model's interpreter.  May
import `model` and below.
"""
