"""What is measured, a module for each part of the CUDA device."""
