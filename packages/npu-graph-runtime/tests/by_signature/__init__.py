"""One object for a function, on the fake device and on the real torch_npu over cann-sim."""
