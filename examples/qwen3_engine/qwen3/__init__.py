"""The model Qwen3: its shape, its layers, its weights, the cache of its keys and values."""
