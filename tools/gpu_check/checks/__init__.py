"""The checks, a module for each part of the CUDA device."""
