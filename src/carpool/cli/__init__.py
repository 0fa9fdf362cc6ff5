"""The command line: one file per command; loads neither a framework nor an event loop."""
