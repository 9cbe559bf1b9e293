"""Quantising a program: which layers have weights, and codes in their place.

What the codes are is decided above (`ingot.quantize`), where data is; here programs are read and
changed. Layers are known by name, so a decision about one holds for each copy of the program.
"""
