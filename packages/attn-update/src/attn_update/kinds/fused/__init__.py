"""What the kinds over the fused attention operators share."""
