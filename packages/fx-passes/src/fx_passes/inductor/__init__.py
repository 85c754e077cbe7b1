"""A pipeline in Inductor's form. Importing this folder imports Inductor; `fx_passes` does not."""

from fx_passes.inductor.post_grad_passes import PostGradPasses
from fx_passes.inductor.replacements import Replacements

__all__ = ["PostGradPasses", "Replacements"]
