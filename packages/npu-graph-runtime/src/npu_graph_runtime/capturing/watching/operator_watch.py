"""The dispatch mode that the package's watches of operators derive from."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from npu_graph_runtime.torch_internals import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    Run = Callable[[], Any]

Watch = TypeVar("Watch", bound="OperatorWatch")


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees operators, those of compiled code too; Dynamo does not trace what it does with them.

    Attributes:
        is_looking: whether operators are currently seen.
    """

    supports_higher_order_operators = True
    is_looking = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return an object of this class, or of one that Dynamo skips where Dynamo is imported."""
        del args, kwargs
        kind: type[Self] = _skipped(cls) if "torch._dynamo" in sys.modules else cls
        return super().__new__(kind)

    @contextlib.contextmanager
    def looking(self, is_looking: bool) -> Iterator[None]:
        """See operators in the block, or ignore them."""
        before, self.is_looking = self.is_looking, is_looking
        try:
            yield
        finally:
            self.is_looking = before

    def before(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Run | None:
        """See an operator; return what runs it in its place, of which operators are seen too."""
        del func, args, kwargs
        return None

    def after(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """See the result of an operator in whose place nothing ran."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator between `before` and `after`."""
        del types
        kwargs = kwargs or {}
        if not self.is_looking:
            return func(*args, **kwargs)
        run = self.before(func, args, kwargs)
        if run is not None:
            with self:
                return run()
        result = func(*args, **kwargs)
        self.after(func, args, kwargs, result)
        return result

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return true, since Dynamo runs compiled code under no other kind of mode."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch 2.11 to 2.14 ask this where a class is made, and import Dynamo if it is to be
        # skipped, which takes seconds.
        return False


def _skipped(watch: type[Watch]) -> type[Watch]:
    run: Any = watch.__torch_dispatch__

    # Those who look for the program's own frame pass over functions of this name.
    def __torch_dispatch__(  # noqa: N807
        self: Watch,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return run(self, func, types, args, kwargs)

    members = {
        "_should_skip_dynamo": classmethod(lambda _: True),
        "__torch_dispatch__": __torch_dispatch__,
    }
    return type(watch.__name__, (watch,), members)
