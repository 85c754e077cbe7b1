"""How the step parameters of one graph key reach its captured launches."""
