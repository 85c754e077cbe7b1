"""Rules, and how a match becomes new nodes: where they may stand, and what is checked."""
