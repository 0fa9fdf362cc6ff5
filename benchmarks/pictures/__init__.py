"""Pictures for the docs: the sweep of quanta from a result file, and the turns and moves of a live run."""
