"""Branches and loops: building them, and passes over them."""
