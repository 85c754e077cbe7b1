"""What is asked of a rewrite before it is made: what it may use, write and hand on."""
