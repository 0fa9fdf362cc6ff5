"""The parts of ``carpool simulate``: the only place from which the command line reaches the simulator."""
