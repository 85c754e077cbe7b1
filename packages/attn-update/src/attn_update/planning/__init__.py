"""Maps the step parameters of one graph key to its captured launches."""
