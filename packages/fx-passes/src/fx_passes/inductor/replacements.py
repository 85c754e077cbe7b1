"""Replacements that were written for npugraph_ex or torchair, as rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes.errors import PatternError
from fx_passes.inductor.replacement_rule import rule_from_replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from fx_passes.inductor.replacement_rule import MatchForExtraCheck
    from fx_passes.rewriting.rule import Rule


class Replacements:
    """Collects the patterns of code that calls `register_replacement` of npugraph_ex or torchair.

    Pass `replacements.register_replacement` to that code instead of theirs, then call
    `PostGradPasses.add(replacements.rules)`. Their function puts all patterns of a process into one
    table; this object belongs to you, and registers nothing.

    Attributes:
        rules: One for each registration, in order.
    """

    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] = ()
        self._known: list[tuple[object, object]] = []

    def register_replacement(
        self,
        search_fn: Callable[..., object],
        replace_fn: Callable[..., object],
        example_inputs: Sequence[torch.Tensor] | Callable[[], Sequence[torch.Tensor]],
        trace_fn: object = None,
        extra_check: Callable[[MatchForExtraCheck], bool] | None = None,
        search_fn_pattern: object = None,
        scalar_workaround: Mapping[str, object] | None = None,
        skip_duplicates: bool = False,
    ) -> None:
        """Make a rule; the parameters are those of npugraph_ex, in their order.

        Args:
            search_fn: See `rule_from_replacement`.
            replace_fn: The same.
            example_inputs: The same.
            trace_fn: Not read: this package traces by itself, forward only.
            extra_check: See `rule_from_replacement`. Nodes on several streams, or of several
                scopes of execution, are refused without it.
            search_fn_pattern: Must be None.
            scalar_workaround: See `rule_from_replacement`.
            skip_duplicates: Whether the same two functions registered again are one rule.

        Raises:
            PatternError: A pattern that Inductor compiled was given, or the two functions have
                other parameters.
        """
        del trace_fn
        name = str(getattr(search_fn, "__qualname__", search_fn))
        if search_fn_pattern is not None:
            raise PatternError(
                f"registering the replacement {name!r}: expected a search function, found a "
                "pattern that Inductor compiled (search_fn_pattern), which says nothing of the "
                "operators' defaults; write the search function out and leave the pattern away"
            )
        if skip_duplicates and (search_fn, replace_fn) in self._known:
            return
        self._known.append((search_fn, replace_fn))
        taken = {rule.name for rule in self.rules}
        number = 2
        unique = name
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        rule = rule_from_replacement(
            search_fn, replace_fn, example_inputs, extra_check, scalar_workaround, name=unique
        )
        self.rules = (*self.rules, rule)
