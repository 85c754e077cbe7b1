"""Ways for a kept compilation to be stale: each is compiled anew or right, never wrong."""
