"""OpenCL C for kernels."""
