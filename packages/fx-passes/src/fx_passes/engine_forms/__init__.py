"""What engines spell in operators of their own, rewritten into what the fusions know."""

from fx_passes.engine_forms.vllm_ascend import vllm_ascend_forms

__all__ = ["vllm_ascend_forms"]
