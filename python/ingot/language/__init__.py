"""Texts from language models in GGUF files: tokenizer, generation, conversations."""
