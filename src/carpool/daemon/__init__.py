"""carpoold: one event loop that runs the pure core on real jobs and keeps a journal of what it decided and why."""
