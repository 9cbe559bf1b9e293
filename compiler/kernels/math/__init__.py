"""The math library: exp, sin, pow, ... as functions of loop IR, written once for all targets."""
