"""Commands about what has happened or would happen: events, timelines and simulations."""
