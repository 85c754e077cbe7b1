"""Launches the updates of a step on the lane's stream."""
