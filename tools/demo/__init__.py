"""The demo: five training jobs share one device under every policy, with the weights they get alone."""
