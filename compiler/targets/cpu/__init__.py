"""CPU: loop IR as C, the headers it needs, compiler flags, and the toolchain."""
