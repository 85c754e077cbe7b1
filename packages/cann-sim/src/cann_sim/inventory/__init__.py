"""What is installed, what it may ask for, and what is simulated of that."""
