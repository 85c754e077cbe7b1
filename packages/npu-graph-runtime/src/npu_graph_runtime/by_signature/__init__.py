"""One object for a function: captured at the first call of each signature, replayed afterwards."""
