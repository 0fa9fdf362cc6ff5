"""The parts of ``carpool simulate``: what to simulate, the run, the table and the files that are written.

The only room that imports the simulator, and only inside functions, so that no other command waits for it to load.  May
import `base`, `render` and the core's values besides.
"""
