"""What a graph uses and does not own: seen at its capture, watched afterwards."""
