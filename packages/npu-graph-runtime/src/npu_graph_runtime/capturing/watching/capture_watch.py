"""Records what a capture depends on besides its arguments, and compares it later.

Note [what is watched]: the operators of a capture show which memory they use. Memory that existed
before is watched through its storage, at no cost: torch calls back when it is freed, and the next
replay then compares all memory and raises. A storage that stays alive with other memory (`resize_`)
has no callback, so one storage is compared at each replay, in turn. If a trainer moves the memory
of all weights, the first replay notices; if it moves one, it takes at most as many replays as there
are storages. If the old memory also stays alive, nothing says that the graph should use other
memory. Parameters and buffers are therefore compared at the first replay and whenever memory was
freed. An engine may rebind tensors in other places at each step, so these are only compared in
`check_weights`.
"""

from __future__ import annotations

import enum
import gc
import warnings
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from npu_graph_runtime.capturing.tensor_leaves import leaves, named_arguments, tensor_leaves
from npu_graph_runtime.capturing.watching.captured_memory import CapturedMemory, plain_tensors
from npu_graph_runtime.capturing.watching.changed_state import ChangedState
from npu_graph_runtime.capturing.watching.reachable_values import Place, reachable_values
from npu_graph_runtime.capturing.watching.watched_weights import TensorPlace, WatchedWeights
from npu_graph_runtime.errors import FrozenStateWarning, KeptMemoryError, ReplacedWeightError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

    import torch

    from npu_graph_runtime.capturing.native.native_comparison import Holds
    from npu_graph_runtime.capturing.watching.captured_memory import MadeMemory, UsedMemory
    from npu_graph_runtime.capturing.watching.watched_weights import NamedTensors

# How many findings a message lists.
_LISTED = 5


class KeptMemory(enum.Enum):
    """What a capture does if memory that it allocated is kept outside and is not an output."""

    RAISE = "raise"
    """Raise :class:`~npu_graph_runtime.errors.KeptMemoryError`; nothing is captured."""

    WARN = "warn"
    """Warn once a callable: for who knows that nobody relies on what lies there."""


class CallableWatch:
    """Watches everything that the graphs of one callable depend on.

    Args:
        function: the captured function.
        weights: as for `GraphedCallable`; ``None`` for those of a module.
        kept_memory: what to do if a capture's memory is kept outside.
        is_compared: whether memory is compared at replays at all.
        freed: receives an item when memory that a graph uses is freed.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        weights: NamedTensors,
        kept_memory: KeptMemory,
        is_compared: bool,
        freed: list[object],
    ) -> None:
        self.function = function
        self.weights = WatchedWeights(weights if is_compared else tuple, freed)
        self.kept_memory = kept_memory
        self.is_compared = is_compared
        self.freed = freed
        self.has_watched_state = False
        self.has_warned_of_kept = False
        self._places: dict[int, tuple[weakref.ref[torch.UntypedStorage], Place | None]] = {}

    def begin(
        self,
        device: torch.device,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        of_pool: MutableMapping[int, weakref.ref[torch.UntypedStorage]],
        subject: str,
        *,
        is_for_replays: bool = True,
    ) -> CaptureWatch:
        """Return a watch for one capture.

        Memory of the arguments is compared as that of inputs. ``is_for_replays`` is false
        if nothing is captured, so that freed memory concerns no graph.
        """
        freed = self.freed if is_for_replays else []
        given = [tensor for _, tensor in tensor_leaves((*args, *kwargs.values()), "")]
        memory = CapturedMemory(device, given, of_pool, freed)
        return CaptureWatch(self, memory, args, kwargs, subject)

    def places(self, storages: Mapping[int, torch.UntypedStorage]) -> dict[int, Place]:
        """Return where the callable has tensors on some memory, by the identity of its storage."""
        unknown = {
            key
            for key, storage in storages.items()
            if key not in self._places or self._places[key][0]() is not storage
        }
        if unknown:
            found = dict(_stored(self.function, unknown))
            self._places = {
                key: place for key, place in self._places.items() if place[0]() is not None
            }
            for key in unknown:
                self._places[key] = (weakref.ref(storages[key]), found.get(key))
        known = {key: self._places[key][1] for key in storages}
        return {key: place for key, place in known.items() if place is not None}


class CaptureWatch:
    """Watches one capture. Created by `CallableWatch.begin`.

    Attributes:
        memory: enter it while the device is capturing.
    """

    def __init__(
        self,
        watch: CallableWatch,
        memory: CapturedMemory,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        subject: str,
    ) -> None:
        self.memory = memory
        self._watch = watch
        self._subject = subject
        self._arguments = named_arguments(args, kwargs)
        self._weights: Mapping[str, TensorPlace] = {}
        self._state: ChangedState | None = None
        self._kept_by_graph: set[int] = set()

    def begin(self) -> None:
        """Record the present state; call it after the warm-up runs."""
        self._weights = self._watch.weights.baked()
        # Once a callable: what a function changes in one capture it changes in each.
        if not self._watch.has_watched_state:
            self._watch.has_watched_state = True
            self._state = ChangedState({"": self._watch.function, **self._arguments})

    def begin_eager(self) -> None:
        """Record that a function begins that also runs at each replay."""
        if self._state is not None:
            self._state.note()

    def end_eager(self, name: str, arguments: object, result: object) -> None:
        """Record that it has ended.

        Each replay passes the arguments again, and the graph keeps the result.
        """
        self.memory.use(arguments, f"the call of {name}")
        self.memory.write(arguments, f"the call of {name}")
        self._kept_by_graph.update(_storages(result))
        for _, leaf in leaves(arguments, ""):
            if not isinstance(leaf, Tensor):
                self._kept_by_graph.update(_storages(leaf))
        if self._state is not None:
            self._state.skip()

    def end(self, outputs: object) -> BakedMemory:
        """Return the memory that the capture depends on.

        Raises:
            ReplacedWeightError: The captured function replaced memory that the graph uses.
            KeptMemoryError: Memory that the capture allocated is kept outside.
        """
        state, self._state = self._state, None
        if state is not None:
            state.note()
        self._watch.weights.check(self._weights, self._subject, doing="capturing")
        used = self.memory.used if self._watch.is_compared else []
        alive = {}
        for each in used:
            storage = each.storage()
            if storage is not None:
                alive[id(storage)] = storage
        baked = BakedMemory(
            self._watch,
            self._weights,
            tuple(used),
            self._watch.places(alive),
            self._subject,
            self.memory,
        )
        baked.check(doing="capturing")
        self._check_kept(outputs)
        if state is not None:
            self._warn_of(list(state.changes.values()))
        return baked

    def _check_kept(self, outputs: object) -> None:
        if self._watch.has_warned_of_kept:
            return
        kept = self.kept(outputs)
        if not kept:
            return
        texts = "; ".join(
            f"{made.described}, made by {made.made_by}" + (f", kept as {path}" if path else "")
            for made, path in kept[:_LISTED]
        )
        problem = (
            f"capturing {self._subject}: {_several(len(kept), 'tensor')} made inside the capture "
            f"and kept outside of it, expected none but outputs: {texts}; such memory belongs to "
            "the graph: each replay writes it anew, graphs of the same pool may overwrite it, and "
            "replays do not change what Python keeps; make them before the capture (warmup_runs=1 "
            "runs the function once before), write into a buffer that exists (copy_), return them, "
            "or pass kept_memory=KeptMemory.WARN if nothing relies on them between replays"
        )
        if self._watch.kept_memory is KeptMemory.RAISE:
            raise KeptMemoryError(problem)
        self._watch.has_warned_of_kept = True
        warnings.warn(problem, RuntimeWarning, stacklevel=6)

    @property
    def reports_kept(self) -> bool:
        """Whether memory that is kept outside is an error."""
        return self._watch.kept_memory is KeptMemory.RAISE

    def kept(self, outputs: object) -> list[tuple[MadeMemory, str]]:
        """Return memory allocated inside and kept outside, and where the function has it."""
        if not self._kept(outputs):
            return []
        # It may be in a cycle that nothing has collected: collection is held off in sessions.
        gc.collect()
        kept = self._kept(outputs)
        places = dict(_stored(self._watch.function, set(kept)))
        return [(made, places[key].path if key in places else "") for key, made in kept.items()]

    def _kept(self, outputs: object) -> dict[int, MadeMemory]:
        returned = _storages(outputs)
        if any(tensor.requires_grad for tensor in returned.values()):
            # What backward would read is kept by the outputs.
            return {}
        ours = self._kept_by_graph | returned.keys()
        return {key: made for key, made in self.memory.kept().items() if key not in ours}

    def _warn_of(self, changes: list[str]) -> None:
        if not changes:
            return
        warnings.warn(
            f"capturing {self._subject}: the function changed "
            f"{_several(len(changes), 'value')} of Python: {listed(changes)}; "
            "replays do not run Python, so these stay as they are now, and what "
            "captured work was launched with stays what it was; keep in tensors what the function "
            "counts or remembers, or do it outside of the captured function",
            FrozenStateWarning,
            stacklevel=6,
        )


class BakedMemory:
    """Memory that one graph uses but does not own.

    Attributes:
        numbers: numbers of the host that kernels of the graph were launched with.
        written: addresses of memory that each replay writes, including that of arguments.
        written_elsewhere: an operator that writes memory of another device, which replays do not
            run; ``None`` if there is none.
    """

    def __init__(
        self,
        watch: CallableWatch,
        weights: Mapping[str, TensorPlace],
        used: tuple[UsedMemory, ...],
        places: Mapping[int, Place],
        subject: str,
        memory: CapturedMemory,
    ) -> None:
        self.numbers = tuple(memory.numbers) if watch.is_compared else ()
        self.written = frozenset(memory.written)
        self.written_elsewhere = memory.written_elsewhere
        self._watch = watch
        self._weights = weights
        self._subject = subject
        self._used = []
        for each in used:
            storage = each.storage()
            place = None if storage is None else places.get(id(storage))
            self._used.append(_Used(each, place, self._expected(place)))

    @property
    def in_turn(self) -> list[tuple[weakref.ref[Tensor], int]]:
        """Tensors and their addresses, one of which is compared at each replay."""
        return [
            (each.memory.tensor, each.memory.address)
            for each in self._used
            if each.memory.tensor() is not None
        ]

    @property
    def addresses(self) -> frozenset[int]:
        """Addresses of the memory that the graph uses and that belongs to no argument."""
        return frozenset(each.memory.storage_address for each in self._used)

    def with_numbers(self, holds: Holds | None) -> Holds | None:
        """Return a comparison of inputs that also compares the numbers, if there are any."""
        if not self.numbers:
            return holds

        def hold(values: tuple[object, ...] | None) -> bool:
            if any(number.problem for number in self.numbers):
                self.check()
            return holds is None or holds(values)

        return hold

    def check(self, *, doing: str = "replaying", everything: bool = False) -> None:
        """Compare everything with the capture.

        With ``everything``, also compare places that an engine may rebind at each step.

        Raises:
            ReplacedWeightError: Memory was freed or moved, or a weight is another tensor.
        """
        self._watch.weights.check(self._weights, self._subject, doing=doing)
        there = {each.memory.storage_address for each in self._used if each.memory.problem is None}
        problems = [
            text
            for each in self._used
            if (text := self._problem(each, there, everything=everything)) is not None
        ]
        problems += [
            f"{number.described}, whose value {number.used_by} was launched with, {text}"
            for number in self.numbers
            if (text := number.problem) is not None
        ]
        if problems:
            raise ReplacedWeightError(
                f"{doing} {self._subject}: the graph uses memory that has changed since the "
                f"capture, in {len(problems)} of {len(self._used) + len(self.numbers)} places: "
                f"{listed(problems)}; write new values into the tensors of the capture (copy_), "
                "keep numbers that change in tensors of the device, or release the graph and "
                "capture it again"
            )

    def _problem(self, used: _Used, there: set[int], *, everything: bool) -> str | None:
        memory, place = used.memory, used.place
        name = f"{place.path}, " if place is not None else ""
        problem = memory.problem
        # An alias that does not own its memory, such as a weak reference, may go at any time.
        if problem is not None and memory.storage_address not in there:
            return f"{name}{memory.described}, used by {memory.used_by}, {problem}"
        if place is None or (used.expected is None and not everything):
            return None
        now = place.read(self._watch.function)
        if used.expected is not None:
            found = TensorPlace.of(now) if isinstance(now, Tensor) else "gone"
            if found != used.expected:
                return f"{place.path} is {found}, expected {used.expected}"
        elif isinstance(now, Tensor) and now.untyped_storage().data_ptr() != memory.storage_address:
            return f"{place.path} is {TensorPlace.of(now)}, expected {memory.described}"
        return None

    def _expected(self, place: Place | None) -> TensorPlace | None:
        """Return the place of a weight that the function reaches by itself."""
        # Those of a module are read by name.
        if place is None or not place.is_weight or isinstance(self._watch.function, nn.Module):
            return None
        value = place.read(self._watch.function)
        return TensorPlace.of(value) if isinstance(value, Tensor) else None


class _Used(NamedTuple):
    memory: UsedMemory
    place: Place | None
    expected: TensorPlace | None


def listed(texts: Sequence[str]) -> str:
    """Return the first findings for a message, and how many more there are."""
    more = f"; and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return "; ".join(texts[:_LISTED]) + more


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _storages(value: object) -> dict[int, Tensor]:
    """Return a tensor for each memory that a value refers to, by the identity of its storage."""
    found = {}
    for tensor in (
        *(tensor for _, tensor in tensor_leaves(value, "")),
        *(each for _, _, each in reachable_values(value) if isinstance(each, Tensor)),
    ):
        for part in plain_tensors(tensor):
            found[id(part.untyped_storage())] = tensor
    return found


def _stored(function: object, storages: set[int]) -> Iterator[tuple[int, Place]]:
    """Yield where a function has tensors on some memory, the nearest place for each."""
    left = set(storages)
    for place, _, value in reachable_values(function):
        if not left:
            return
        if isinstance(value, Tensor):
            try:
                key = id(value.untyped_storage())
            except (RuntimeError, NotImplementedError):
                continue  # has none
            if key in left:
                left.discard(key)
                yield key, place
