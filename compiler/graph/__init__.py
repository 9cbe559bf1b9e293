"""The graph level: tensor ops, their meaning, and the passes that rewrite them."""
