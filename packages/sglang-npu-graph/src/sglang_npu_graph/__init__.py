"""SGLang's decode graphs on Ascend, updated by attn_update: a plugin and one environment variable.

Importing this module imports nothing of the engine.
"""

from sglang_npu_graph.__about__ import __version__
from sglang_npu_graph.options import VARIABLE, Options

__all__ = [
    "VARIABLE",
    "Options",
    "__version__",
]
