"""The installed versions, the operators they may use, and the simulated ones."""
