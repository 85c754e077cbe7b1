"""What the sessions of ``noxfile.py`` are made of: packages, environments, versions of torch."""
