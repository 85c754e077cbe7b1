"""Models with other layers than full attention, in every mode."""
