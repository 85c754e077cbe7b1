"""Tables of the arguments that operators of a device accept, generated from CANN's documents."""
