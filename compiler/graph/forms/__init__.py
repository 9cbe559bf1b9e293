"""Passes that bring ops into the forms that kernels have."""
