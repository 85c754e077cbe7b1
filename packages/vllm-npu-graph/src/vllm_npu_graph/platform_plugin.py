"""Entry point for pieces: vLLM's plugin group ``vllm.platform_plugins``, name ``npu_graph``.

vLLM accepts one external platform, so this one is only active if ``VLLM_PLUGINS`` names it, and
not ``ascend``.
"""

from __future__ import annotations


def register() -> str | None:
    """Return the name of the platform's class, or None where it was not chosen."""
    # vLLM calls this; nothing else needs vLLM to import this package.
    from vllm import envs  # noqa: PLC0415

    chosen = envs.VLLM_PLUGINS or ()
    if "npu_graph" not in chosen or "ascend" in chosen:
        return None
    return "vllm_npu_graph.platform.NpuGraphPlatform"
