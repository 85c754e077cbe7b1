"""Python state that a function changes during its capture, and that replays will not change.

A counter, list or attribute that the function sets at each call is set once, at the capture,
because replays run no Python. Captured work keeps the values it was launched with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from npu_graph_runtime.capturing.watching.reachable_values import is_of_a_model, reachable_values

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_SIZED = (list, dict, set)


class ChangedState:
    """Compares the Python state that a function can reach before and after a call.

    Covers numbers, strings, sizes of lists, dicts and sets, and which tensor is where, in modules,
    objects, closures, global variables and classes of the model.

    Attributes:
        changes: the recorded changes, each a sentence, by the path of the changed value.
    """

    def __init__(self, roots: Mapping[str, object]) -> None:
        self._entries: list[_Entry] = []
        self.changes: dict[str, str] = {}
        classes: set[type] = set()
        for name, root in roots.items():
            for place, holder, value in reachable_values(root):
                path = f"{name}.{place.path}" if name else place.path
                getter, key = place.steps[-1]
                seen = _seen(value)
                if seen is not None:
                    self._entries.append(_Entry(path, getter, holder, key, seen))
                if isinstance(value, nn.Module) or is_of_a_model(value):
                    classes.update(type(value).__mro__)
            classes.update(type(root).__mro__)
        for kind in classes:
            if is_of_a_model(kind):
                self._add_class(kind)

    def note(self) -> None:
        """Record the changes since the last time, and begin again."""
        for index, entry in enumerate(self._entries):
            now = entry.now()
            if now != entry.seen:
                self.changes[entry.path] = f"{entry.path} was {entry.seen}, is {now}"
                self._entries[index] = entry._replace(seen=now)

    def skip(self) -> None:
        """Ignore the changes since the last time."""
        self._entries = [entry._replace(seen=entry.now()) for entry in self._entries]

    def _add_class(self, kind: type) -> None:
        for name, value in vars(kind).items():
            seen = _seen(value)
            if seen is not None and not name.startswith("__"):
                path = f"{kind.__qualname__}.{name}"
                self._entries.append(_Entry(path, _class_attribute, kind, name, seen))


def _class_attribute(kind: type, name: str) -> object:
    return vars(kind)[name]


class _Entry(NamedTuple):
    path: str
    getter: Any
    holder: Any
    key: Any
    seen: str | None

    def now(self) -> str | None:
        try:
            return _seen(self.getter(self.holder, self.key)) or "something else"
        except (LookupError, AttributeError, ValueError, TypeError):
            return "gone"


def _seen(value: object) -> str | None:
    """Return the compared content of a value, also for messages; ``None`` for nothing."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, Tensor):
        return f"a tensor at {value.data_ptr():#x}" if value.device.type != "meta" else None
    if isinstance(value, _SIZED):
        return f"a {type(value).__name__} of {len(value)}"
    return None
