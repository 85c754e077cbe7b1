"""The interface of an attention kind: one operator whose host arguments change at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from torch import Tensor

    from attn_update.kinds.attention_geometry import LengthRule, TensorForm
    from attn_update.kinds.device_length_attention import MetadataOperator


class Kind(Protocol):
    """One way to call attention.

    A kind is a small immutable object without state. Put it into a table from names to kinds; see
    `attn_update.kinds.default_kinds`. A kind that needs no update implements only this protocol;
    one that does implements `AttentionKind`.
    """

    @property
    def operator(self) -> str:
        """The operator that a capture launches, with its overload: ``npu::name.out``."""

    @property
    def step_arguments(self) -> frozenset[str]:
        """The arguments that step parameters may set; empty if no update is needed."""

    def run(self, arguments: Mapping[str, object]) -> tuple[Tensor, ...]:
        """Run the operator eagerly and return its outputs; in captures only if never updated."""

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject unknown and missing arguments with an `ArgumentError`."""


class AttentionKind(Kind, Protocol):
    """A kind with step arguments, whose launch inside a task group is updated."""

    def workspace_bytes(self, arguments: Mapping[str, object]) -> int:
        """Return the workspace bytes that suffice for all lengths that fit these tensors."""

    def make_outputs(self, arguments: Mapping[str, object]) -> tuple[Tensor, ...]:
        """Return the output tensors: those the caller passed as ``out``, or new ones."""

    def launch_arguments(
        self,
        arguments: Mapping[str, object],
        outputs: tuple[Tensor, ...],
        workspace: Tensor,
    ) -> dict[str, object]:
        """Return all keyword arguments for `operator`; defaults may be omitted."""

    def persistent_arguments(self, arguments: Mapping[str, object]) -> frozenset[str]:
        """Return the tensor arguments that the graph does not own and that must outlive it."""

    def geometry(self, arguments: Mapping[str, object]) -> Hashable:
        """Return a value that is equal for layers that share the checks of a step.

        Raises:
            StepParameterError: The captured lengths themselves break the rules.
        """

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Check the values of one step and return them in the form that the operator expects.

        Args:
            values: Step arguments by name; names are already checked.
            geometry: The result of `geometry` for the captured launch.
            pad: Whether a batch smaller than the captured one is padded instead of rejected.
            what: Name of the step in errors.

        Raises:
            StepParameterError: A value violates a rule of the operator or of the captured shapes.
        """


@runtime_checkable
class RuledKind(Protocol):
    """A kind whose plain lists and tensors may be checked without `AttentionKind.prepare`."""

    def step_rules(self, geometry: Hashable) -> Mapping[str, LengthRule | TensorForm]:
        """Return the rules of the step arguments that are passed to the operator unchanged.

        Args:
            geometry: The result of `AttentionKind.geometry` for the captured launch.

        Returns:
            The arguments for which `prepare` returns every list that satisfies the rule, padded or
            not, or every tensor of the form, unchanged. All other arguments are omitted.
        """


@runtime_checkable
class ProducedKind(Protocol):
    """A kind whose operator takes metadata that other operators make on the device."""

    @property
    def metadata(self) -> tuple[MetadataOperator, ...]:
        """What makes it."""


def metadata_arguments(kind: Kind) -> frozenset[str]:
    """Return the arguments that a producer has to make in every step."""
    if not isinstance(kind, ProducedKind):
        return frozenset()
    made = [name for each in kind.metadata for name in (each.argument, *each.further)]
    return frozenset(name for name in made if name is not None)


def needs_update(kind: Kind) -> TypeGuard[AttentionKind]:
    """Return whether launches of a kind must be updated at every step."""
    return bool(kind.step_arguments)
