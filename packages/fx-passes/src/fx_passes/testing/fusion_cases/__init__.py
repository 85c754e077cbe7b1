"""The cases of all fusions, by what they end with."""

from fx_passes.testing.fusion_cases.activation import ACTIVATION_CASES
from fx_passes.testing.fusion_cases.noop import NOOP_CASES
from fx_passes.testing.fusion_cases.norm import NORM_CASES
from fx_passes.testing.fusion_cases.norm_quant import NORM_QUANT_CASES
from fx_passes.testing.fusion_cases.rotary import ROTARY_CASES

FUSION_CASES = (
    *NORM_CASES,
    *NORM_QUANT_CASES,
    *ACTIVATION_CASES,
    *ROTARY_CASES,
    *NOOP_CASES,
)

__all__ = ["FUSION_CASES"]
