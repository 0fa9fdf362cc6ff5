"""The simulator: the same core as in the daemon, driven by virtual time and modelled jobs."""
