"""The memory model: what a node reads and writes, what shares memory, and where memory is used."""

from fx_passes.memory.alias_analysis import AliasAnalysis
from fx_passes.memory.effect import PREPARED_VALUES, Effect, EffectTable
from fx_passes.memory.outside_writes import OutsideWrites
from fx_passes.memory.view_users import (
    escapes,
    meets_its_source,
    needs_contiguous,
    shows_layout,
    views_of,
    witness_of_write,
)

__all__ = [
    "PREPARED_VALUES",
    "AliasAnalysis",
    "Effect",
    "EffectTable",
    "OutsideWrites",
    "escapes",
    "meets_its_source",
    "needs_contiguous",
    "shows_layout",
    "views_of",
    "witness_of_write",
]
