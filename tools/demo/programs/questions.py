"""How the model is asked, in both runs."""

WIDTH = 768
QUESTIONS, PAUSE_S = 12, 0.3
