"""Tables of what the operators of a device accept, made from CANN's documents."""
