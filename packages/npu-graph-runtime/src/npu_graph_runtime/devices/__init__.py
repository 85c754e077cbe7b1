"""Implementations of the device seam: ``npu`` on torch_npu, ``fake`` in pure Python."""
