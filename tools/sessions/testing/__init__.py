"""How sessions run tests: on all cores, at their full length, on every release of torch."""
