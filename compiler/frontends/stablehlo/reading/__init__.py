"""The portable artifact: MLIR bytecode into ops with attributes."""
