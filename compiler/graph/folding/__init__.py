"""Rules and passes that make a program smaller: folding, merging, removing."""
