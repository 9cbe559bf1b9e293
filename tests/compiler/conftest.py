"""Makes `kernel_runner` importable for the tests below this folder."""
