"""Messages between the front and the processes of models, and the channel that carries them.

Standard library only: both ends import it.
"""
