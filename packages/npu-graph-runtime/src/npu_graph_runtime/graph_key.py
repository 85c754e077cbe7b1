"""The graph key, which selects one captured graph of a callable."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from npu_graph_runtime.errors import GraphKeyError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GraphKey:
    """Everything that changes which launches a captured graph contains.

    The token count alone is not enough: two batches of the same size that differ in the number of
    active LoRA adapters or in uniformity run other kernels, and must not share a graph. Keys are
    equal if their values are equal and have the same types: ``extra=(1,)`` and ``extra=(True,)``
    are different keys. You can pickle a key and send it to another process, where it finds the
    graph captured there with an equal key. The hash is computed once. If you keep one key object
    per graph (for example in a table by bucket), a look-up costs one identity comparison.

    Attributes:
        num_tokens: tokens of the padded batch, at least 1.
        num_sequences: sequences of the padded batch, or ``None`` if the graph does not depend
            on it (for example a piece without attention).
        uniform: whether every sequence has the same number of query tokens.
        num_active_loras: active LoRA adapters, 0 without LoRA.
        extra: anything else that selects a graph, as a tuple of hashable values.

    Raises:
        GraphKeyError: A count is not an int or is out of range, ``uniform`` is not a bool, or
            ``extra`` is not a tuple of hashable values.
    """

    num_tokens: int
    num_sequences: int | None = None
    uniform: bool = False
    num_active_loras: int = 0
    extra: tuple[Hashable, ...] = ()
    _extra_types: object = dataclasses.field(init=False, repr=False)
    _hash: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_types()
        if self.num_tokens < 1:
            raise GraphKeyError(
                f"making a graph key: num_tokens is {self.num_tokens}, expected at least 1; "
                "an empty batch has nothing to capture, so run it eagerly or skip it"
            )
        if self.num_sequences is not None and not 1 <= self.num_sequences <= self.num_tokens:
            raise GraphKeyError(
                f"making a graph key of {self.num_tokens} tokens: num_sequences is "
                f"{self.num_sequences}, expected 1 to {self.num_tokens} or None"
            )
        if self.num_active_loras < 0:
            raise GraphKeyError(
                f"making a graph key: num_active_loras is {self.num_active_loras}, "
                "expected 0 or more"
            )
        fields = (self.num_tokens, self.num_sequences, self.uniform, self.num_active_loras)
        try:
            value = hash((*fields, self.extra))
        except TypeError as error:
            raise GraphKeyError(
                f"making a graph key: extra is {self.extra!r}, expected a tuple of hashable values"
            ) from error
        object.__setattr__(self, "_extra_types", _types(self.extra))
        object.__setattr__(self, "_hash", value)

    def _check_types(self) -> None:
        """Reject values that would equal a value of another type."""
        counts = {"num_tokens": self.num_tokens, "num_active_loras": self.num_active_loras}
        if self.num_sequences is not None:
            counts["num_sequences"] = self.num_sequences
        kinds: list[tuple[str, object, type]] = [(name, n, int) for name, n in counts.items()]
        kinds += [("uniform", self.uniform, bool), ("extra", self.extra, tuple)]
        for name, value, kind in kinds:
            if type(value) is not kind and not (kind is tuple and isinstance(value, tuple)):
                raise GraphKeyError(
                    f"making a graph key: {name} is {value!r} of type {type(value).__name__}, "
                    f"expected {kind.__name__}"
                )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[[], GraphKey], tuple[()]]:
        """Return how to copy the key: from its values, because hashes of strings differ.

        The process that loads the key determines the types of ``extra`` again.
        """
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.init
        }
        return functools.partial(type(self), **values), ()

    def __str__(self) -> str:
        parts = [f"num_tokens={self.num_tokens}"]
        if self.num_sequences is not None:
            parts.append(f"num_sequences={self.num_sequences}")
        if self.uniform:
            parts.append("uniform")
        if self.num_active_loras:
            parts.append(f"num_active_loras={self.num_active_loras}")
        parts += [repr(value) for value in self.extra]
        return f"({', '.join(parts)})"


def _types(value: object) -> object:
    """Return the type of a value, or the types of a tuple's items."""
    if isinstance(value, tuple):
        return (type(value), *[_types(item) for item in value])
    return type(value)


def largest_first(keys: Iterable[GraphKey]) -> list[GraphKey]:
    """Return keys in the recommended order of capture: the largest graph first.

    The first capture then makes the shared pool as large as any later one needs, so smaller graphs
    reuse its blocks (vLLM's ``get_capture_descs`` and SGLang's graph runner use the same order).
    Keys of equal size keep their order.

    Args:
        keys: any number of keys; not changed.
    """

    def size(key: GraphKey) -> tuple[int, int, int]:
        return key.num_tokens, key.num_sequences or key.num_tokens, key.num_active_loras

    return sorted(keys, key=size, reverse=True)
