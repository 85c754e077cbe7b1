"""Traces, on the fake device and on the real torch_npu over cann-sim."""
