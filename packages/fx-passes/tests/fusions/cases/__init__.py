"""The cases of all fusions, grouped by the last operator."""

from fusions.cases.activation import ACTIVATION_CASES
from fusions.cases.head_product import HEAD_PRODUCT_CASES
from fusions.cases.noop import NOOP_CASES
from fusions.cases.norm import NORM_CASES
from fusions.cases.norm_cast import NORM_CAST_CASES
from fusions.cases.norm_quant import NORM_QUANT_CASES
from fusions.cases.rotary import ROTARY_CASES
from fusions.cases.two_quants import TWO_QUANTS_CASES

FUSION_CASES = (
    *NORM_CASES,
    *NORM_CAST_CASES,
    *NORM_QUANT_CASES,
    *TWO_QUANTS_CASES,
    *ACTIVATION_CASES,
    *ROTARY_CASES,
    *HEAD_PRODUCT_CASES,
    *NOOP_CASES,
)

__all__ = ["FUSION_CASES"]
