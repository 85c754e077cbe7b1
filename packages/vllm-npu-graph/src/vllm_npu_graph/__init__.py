"""vLLM-Ascend's decode graphs, updated by attn_update: ``worker_cls`` and one key of the engine.

Importing this module imports nothing of the engine.
"""

from vllm_npu_graph.__about__ import __version__
from vllm_npu_graph.options import KEY, Options

__all__ = ["KEY", "Options", "__version__"]
