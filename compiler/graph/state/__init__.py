"""Arguments and results that become variables of the module."""
