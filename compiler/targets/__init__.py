"""Targets: printers of loop IR and the tools that make objects of them."""
