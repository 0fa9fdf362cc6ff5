"""The simulator: the core that runs live, driven by virtual time and modelled jobs."""
