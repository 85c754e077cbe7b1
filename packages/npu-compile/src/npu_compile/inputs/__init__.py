"""What a step is given: inputs as they are declared, placed, packed and copied."""
