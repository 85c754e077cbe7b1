"""Producers: operators on the device that make metadata for captured attention, in every step.

A `Producer` says how metadata is made, where, and for how much. A `ProducerLane` runs the producers
of a graph in front of each replay, or captures them into it.
"""

from attn_update.errors import ProducerError
from attn_update.producers.producer import Producer, ProducerStep
from attn_update.producers.producer_lane import ProducerLane

__all__ = ["Producer", "ProducerError", "ProducerLane", "ProducerStep"]
