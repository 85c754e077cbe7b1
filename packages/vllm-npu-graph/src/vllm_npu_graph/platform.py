"""vLLM-Ascend's platform, whose graphs of pieces are ours where the key asks for it."""

from __future__ import annotations

from vllm_ascend.platform import NPUPlatform


class NpuGraphPlatform(NPUPlatform):  # type: ignore[misc]
    """The engine's platform; all but one answer is its own."""

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        """Return the name of what wraps a piece."""
        return "vllm_npu_graph.runtime_graphs.make_piece_graphs"

    @classmethod
    def get_compile_backend(cls) -> str:
        """Return the name of what compiles a graph."""
        return "vllm_npu_graph.fusions.FusingCompiler"
