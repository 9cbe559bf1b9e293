"""From graph regions to kernels: dispatch regions, kernel classes, loop IR."""
