"""What is kept of attention launches at capture, and how they are seen."""
