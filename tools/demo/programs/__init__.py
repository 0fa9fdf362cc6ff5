"""What the demo runs beside the examples: each script would run without Carpool, too."""
