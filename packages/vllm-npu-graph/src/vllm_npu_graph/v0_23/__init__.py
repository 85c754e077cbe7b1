"""Replacements for parts of vllm-ascend 0.23 and 0.26."""
