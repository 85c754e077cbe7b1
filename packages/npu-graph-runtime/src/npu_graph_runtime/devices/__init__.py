"""Implementations of the device interface: ``npu``, ``cuda``, and ``fake`` in pure Python."""
