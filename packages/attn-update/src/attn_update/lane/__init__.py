"""The update lane: replay and update of a step, in their order."""
