"""Who uses the public names of the packages: ``PYTHONPATH=tools python -m name_users``."""
