"""What a caller chooses: the configuration, its bad values, and the names that engines give it."""
