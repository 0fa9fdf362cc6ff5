"""Training and judging the learned estimates; needs figures measured by others, which are not in this repository."""
