"""The command ``npu-compile``."""
