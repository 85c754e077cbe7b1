"""Random engines live through random events; every step is compared with an eager run."""
