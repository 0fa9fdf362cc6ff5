"""Engines behind `carpool serve`: unmodified servers of language models that are started when they are asked."""
