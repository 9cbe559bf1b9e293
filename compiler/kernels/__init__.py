"""The kernel level: loop IR of one workgroup, made of each entry by a class of kernels."""
