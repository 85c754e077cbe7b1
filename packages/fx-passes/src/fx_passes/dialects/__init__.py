"""Rewrites engines' own operators into operators that the fusions match."""

from fx_passes.dialects.vllm_ascend import vllm_ascend_dialect

__all__ = ["vllm_ascend_dialect"]
