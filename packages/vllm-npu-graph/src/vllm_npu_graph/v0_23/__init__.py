"""Replacements for parts of vllm-ascend 0.23."""
