"""Plans the memory and sizes of the engine's graphs, and counts how its steps use them."""
