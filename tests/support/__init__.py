"""What several tests need, one concept per module: programs and models in short forms, devices,
runners of kernels, and the oracles that results are compared with. A test file imports helpers
from here and from no other test file; what one file needs alone stays in that file."""
