"""What a runner is given to make attention's metadata on the device in each of its steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update.producers import Producer, ProducerLane
from npu_compile.errors import ConfigError
from npu_compile.runners.runner_arguments import require_callable, require_instance
from npu_graph_runtime import RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attn_update import Lengths
    from npu_compile.inputs.input_spec import StepSize
    from npu_compile.runners.step_form import StepForm


@dataclass(frozen=True, kw_only=True)
class StepProducers:
    """The producers of the steps of runners, beside the captured graphs or inside them.

    A replay runs the producers of its graph in front of it, or inside it. A step that runs eagerly
    or in segments, and the warm-up runs of a capture, run theirs at once on the current stream.
    Several runners may share one object.

    You own the buffers. The lane keeps them alive for as long as a graph that reads them is
    captured. A buffer that steps of several sizes use is as large as the largest of them needs,
    eager steps included.

    Attributes:
        lane: Runs the producers; one for each device, shared between models.
        make: Returns the producers of a step, in any order. It is called with the padded size of
            each captured graph, and with the size of each step that runs without one: the padded
            size if all sequences have the same number of rows, and otherwise that of the batch.
            `Producer.launch` gets the ``lengths`` of the step, as passed to the runner. Sequences
            that these do not have are padding.
        needs: Returns, by producer and bound, what a step of a graph needs. It is called with the
            size of the graph and the ``lengths`` of the step.
        captured: Whether the producers are captured into the graph. `Producer.launch` is then
            called once for each graph, and each replay reads `Producer.inputs` anew.
        write_inputs: Only with `captured`: writes the inputs of the producers on the current
            stream. It is called in each step with the size as for `make` and the ``lengths``.
        groups: Names of those ``lengths`` that only producers read. They are not passed to the
            update plan.

    Raises:
        ConfigError: An attribute has the wrong type, or there is `write_inputs` without `captured`.
    """

    lane: ProducerLane
    make: Callable[[StepSize], Sequence[Producer]]
    needs: Callable[
        [StepSize, Mapping[str, Mapping[str, Lengths]]], Mapping[str, Mapping[str, int]]
    ]
    captured: bool = False
    write_inputs: Callable[[StepSize, Mapping[str, Mapping[str, Lengths]]], object] | None = None
    groups: Collection[str] = ()

    def __post_init__(self) -> None:
        doing = "declaring the producers of steps"
        if not isinstance(self.lane, ProducerLane):
            raise ConfigError(
                f"{doing}: lane is {self.lane!r}, expected a ProducerLane; make it of the device"
            )
        require_callable(doing, "make", self.make, "it returns the producers of a step")
        require_callable(doing, "needs", self.needs, "it returns what a step needs of each bound")
        if isinstance(self.groups, str) or not isinstance(self.groups, Collection):
            raise ConfigError(
                f"{doing}: groups is {self.groups!r}, expected names of parameter groups"
            )
        if self.write_inputs is None:
            return
        require_callable(doing, "write_inputs", self.write_inputs, "leave it out without one")
        if not self.captured:
            raise ConfigError(
                f"{doing}: write_inputs is for producers inside of the graph, expected captured="
                "True; beside the graph Producer.launch gets the lengths of each step"
            )

    def make_checked(self, size: StepSize) -> list[Producer]:
        """Return the producers of a step.

        Raises:
            ConfigError: `make` returned something else.
        """
        made: Any = self.make(size)
        listed = list(made) if isinstance(made, Iterable) else [made]
        if not all(isinstance(each, Producer) for each in listed):
            raise ConfigError(
                f"making the producers of a step of {size}: make returned {made!r}, expected a "
                "list of Producer; return an empty one for a step that needs none"
            )
        return listed

    def checked_needs(
        self, size: StepSize, lengths: Mapping[str, Mapping[str, Lengths]]
    ) -> Mapping[str, Mapping[str, int]]:
        """Return what a step needs of the bounds.

        Raises:
            ConfigError: `needs` returned something else.
        """
        needs: Any = self.needs(size, lengths)
        if not isinstance(needs, Mapping) or not all(
            isinstance(each, Mapping) for each in needs.values()
        ):
            raise ConfigError(
                f"checking the bounds of a step of {size}: needs returned {needs!r}, expected "
                "numbers by bound by producer; return an empty dict where no producer has bounds"
            )
        return needs


def require_producers(doing: str, producers: object) -> None:
    """Check that an argument is `StepProducers`, or ``None``.

    Raises:
        ConfigError: It is something else.
    """
    remedy = "name the lane, and what makes the producers of a step"
    require_instance(doing, "producers", producers, StepProducers, remedy)


def require_produced_steps(
    doing: str,
    producers: object,
    form: StepForm,
    modes: Collection[RunMode],
    shadow_every: int | None,
) -> None:
    """Check that the steps of a runner can have producers, if there are any.

    Raises:
        ConfigError: They cannot.
    """
    require_producers(doing, producers)
    if producers is None:
        return
    if not form.counts_sequences:
        raise ConfigError(
            f"{doing} with producers: no input is declared per_sequence, expected one, by which "
            "the sequences of a batch are counted"
        )
    if shadow_every and RunMode.FULL in modes:
        raise ConfigError(
            f"{doing} with producers: shadow_every is {shadow_every}, expected none where steps "
            "replay as one graph, since the eager run would rewrite the metadata that its replay "
            "reads; compare in mode 'piecewise' or 'breakable'"
        )
