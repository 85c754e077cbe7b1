"""Entry point for pieces: vLLM's plugin group ``vllm.platform_plugins``, name ``npu_graph``.

vLLM accepts one external platform, so this one is only active if ``VLLM_PLUGINS`` names it, and
not ``ascend``. For a release that this package has no platform for, it is the engine's own.
"""

from __future__ import annotations

import logging

from vllm_npu_graph.options import release_folder

_LOGGER = logging.getLogger("vllm.npu_graph")


def register() -> str | None:
    """Return the name of the platform's class, or None where it was not chosen."""
    # vLLM calls this; nothing else needs vLLM to import this package.
    from vllm import envs  # noqa: PLC0415

    chosen = envs.VLLM_PLUGINS or ()
    if "npu_graph" not in chosen or "ascend" in chosen:
        return None
    if release_folder() != "v0_23":
        _LOGGER.warning("vllm-npu-graph leaves the platform of this release to the engine")
        return "vllm_ascend.platform.NPUPlatform"
    return "vllm_npu_graph.v0_23.platform.NpuGraphPlatform"
