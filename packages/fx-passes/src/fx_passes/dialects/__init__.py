"""What engines spell in operators of their own, rewritten into what the fusions know."""

from fx_passes.dialects.vllm_ascend import vllm_ascend_dialect

__all__ = ["vllm_ascend_dialect"]
