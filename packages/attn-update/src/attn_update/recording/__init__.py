"""Records attention launches at capture."""
