"""Rules and pipelines in the form of Inductor, vLLM, npugraph_ex and torchair.

Importing this folder imports Inductor; `fx_passes` itself does not.
"""

from fx_passes.inductor.post_grad_passes import PostGradPasses
from fx_passes.inductor.replacement_rule import (
    MatchForExtraCheck,
    Replacements,
    rule_from_replacement,
)

__all__ = ["MatchForExtraCheck", "PostGradPasses", "Replacements", "rule_from_replacement"]
