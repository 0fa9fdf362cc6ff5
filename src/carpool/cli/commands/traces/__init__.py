"""Commands about the past and about what-if: events, timelines and simulations."""
