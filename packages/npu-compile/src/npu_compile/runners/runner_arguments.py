"""Checks the arguments of runners when they are created, before a step can fail because of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_compile.compilation.compiled_model import CompiledModel
from npu_compile.errors import ConfigError
from npu_compile.inputs.input_spec import InputSpec, require_specs

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_model_and_inputs(
    doing: str, compiled: CompiledModel, inputs: Mapping[str, InputSpec]
) -> None:
    """Check that a model is compiled and that its arguments are declared.

    Args:
        doing: the current operation, for messages.
        compiled: the model.
        inputs: the declarations.

    Raises:
        ConfigError: The model is not compiled, a declaration has the wrong type, or the names
            differ from the model's arguments.
    """
    if not isinstance(compiled, CompiledModel):
        raise ConfigError(
            f"{doing}: the model is a {type(compiled).__name__}, expected a CompiledModel; compile "
            "it first, by npu_compile.compile_model"
        )
    require_specs(doing, inputs)
    compiled.require_arguments(inputs, doing=doing)


def require_instance(doing: str, name: str, value: object, expected: type, remedy: str) -> None:
    """Check that an argument is an instance of a class, or ``None``.

    Raises:
        ConfigError: It is something else.
    """
    if value is not None and not isinstance(value, expected):
        found = value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"
        raise ConfigError(f"{doing}: {name} is {found}, expected a {expected.__name__}; {remedy}")


def require_callable(doing: str, name: str, value: object, remedy: str) -> None:
    """Check that an argument is callable.

    Raises:
        ConfigError: It is not.
    """
    if not callable(value):
        raise ConfigError(f"{doing}: {name} is {value!r}, expected a function; {remedy}")


def require_prepare(doing: str, prepare: object) -> None:
    """Check that the function to be called before a capture is callable.

    Raises:
        ConfigError: It is not.
    """
    require_callable(doing, "prepare", prepare, "it makes attention see the lengths of padding")
