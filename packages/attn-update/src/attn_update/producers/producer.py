"""A producer: an operator on the device that makes metadata which captured attention reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError
from attn_update.kinds.fused_infer_attention import as_tensors
from attn_update.operator_lookup import check_argument_names, find_operator

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from attn_update.kinds.device_length_attention import MetadataOperator


@dataclass(frozen=True, kw_only=True, eq=False)
class Producer:
    """Makes metadata in buffers that stay at their addresses.

    Attributes:
        name: Names it, once for each graph key.
        launch: Launches the operator on the current stream and writes all of `buffers`. It gets
            the `ProducerStep.values` of the step. Beside a graph it is called in every step;
            captured into the graph it is called once, and each replay reads `inputs` anew.
        buffers: What it writes: contiguous tensors on the device, which nobody else writes. Yours,
            and kept alive until their keys are released.
        inputs: Tensors on the device that it reads at the same address in every step. A buffer of
            another producer may be one, if that producer has an earlier stage.
        bounds: The most that the captured graph is made for, by name, such as
            ``{"sequences": 8, "longest": 4096}``: what sizes the buffers, and what the launches of
            the graph took as host integers.
        stage: Producers run in the order of their stages. A layer waits for the stages of the
            buffers that it reads, and not for later ones.
    """

    name: str
    launch: Callable[[Any], object]
    buffers: tuple[torch.Tensor, ...]
    inputs: tuple[torch.Tensor, ...] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    stage: int = 0

    @classmethod
    def calling(
        cls,
        made_by: MetadataOperator,
        *,
        name: str,
        arguments: Mapping[str, Any],
        buffer: torch.Tensor,
        further: tuple[torch.Tensor, ...] = (),
    ) -> Producer:
        """Return the producer that calls the metadata operator of a kind.

        Args:
            made_by: Of the kind, `attn_update.kinds.DeviceLengthAttention.metadata`.
            name: Of the producer.
            arguments: Of the operator, by name. Its tensors are the `inputs`; write the lengths
                of a step into them. Its bounds are the largest values that a step may need.
            buffer: Takes the result, or the first of several: of its shape and dtype.
            further: Take those further results that `made_by` names, in their order.

        Raises:
            UnknownNameError: The library that registers the operator is not imported.
            ArgumentError: The operator has no such argument, a bound is missing, or `further` are
                not as many as `made_by` names.
        """
        check_argument_names(made_by.operator, arguments)
        for bound in sorted(made_by.bounds):
            if type(arguments.get(bound)) is not int:
                raise ArgumentError(
                    f"making the producer {name!r}: expected an integer as {bound!r} of "
                    f"{made_by.operator}, the most that a step may need, found "
                    f"{arguments.get(bound)!r}"
                )
        if len(further) != len(made_by.further):
            raise ArgumentError(
                f"making the producer {name!r}: expected {len(made_by.further)} further buffers "
                f"for the results of {made_by.operator} "
                f"({', '.join(each or 'read elsewhere' for each in made_by.further) or 'none'}), "
                f"found {len(further)}"
            )
        operator, given = find_operator(made_by.operator), dict(arguments)
        buffers = (buffer, *further)

        def launch(_: object) -> None:
            # It may have results that nobody reads.
            for taken, made in zip(buffers, as_tensors(operator(**given)), strict=False):
                taken.copy_(made)

        return cls(
            name=name,
            launch=launch,
            buffers=buffers,
            inputs=tuple(value for value in given.values() if isinstance(value, torch.Tensor)),
            bounds={bound: given[bound] for bound in made_by.bounds},
            stage=made_by.stage,
        )


@dataclass(frozen=True, kw_only=True)
class ProducerStep:
    """What the producers of one step are given.

    Attributes:
        key: The graph key that is replayed.
        needs: For each producer, by name, what this step needs of each of its bounds.
        values: Given to every `Producer.launch`, such as the metadata of an engine.
    """

    key: Hashable
    needs: Mapping[str, Mapping[str, int]]
    values: Any = None
