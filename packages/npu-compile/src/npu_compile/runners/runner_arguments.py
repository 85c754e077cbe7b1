"""Checks the arguments of runners when they are created, before a step can fail because of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attn_update import Recorder, UpdateLane
from npu_compile.compilation.compiled_model import CompiledModel
from npu_compile.errors import ConfigError
from npu_compile.inputs.input_spec import InputSpec, require_specs
from npu_graph_runtime import RunMode

if TYPE_CHECKING:
    from collections.abc import Collection


def require_model_and_inputs(
    doing: str,
    compiled: CompiledModel,
    inputs: Mapping[str, InputSpec],
    *,
    allows_more: bool = False,
) -> None:
    """Check that a model is compiled and its arguments are declared, and no more unless allowed.

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
    own = compiled.argument_names
    names = [name for name in inputs if name in own] if allows_more else inputs
    compiled.require_arguments(names, doing=doing)


def require_instance(doing: str, name: str, value: object, expected: type, remedy: str) -> None:
    """Check that an argument is an instance of a class, or ``None``.

    Raises:
        ConfigError: It is something else.
    """
    if value is not None and not isinstance(value, expected):
        found = value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"
        raise ConfigError(f"{doing}: {name} is {found}, expected a {expected.__name__}; {remedy}")


def require_updates(
    doing: str,
    modes: Collection[RunMode],
    *,
    recorder: object,
    lane: object,
    groups: object,
    remedy: str,
    needs_groups: bool = False,
) -> None:
    """See that what rewrites attention's arguments is there, where steps replay as one graph.

    Raises:
        ConfigError: something is of another type, or is missing in run mode ``FULL``.
    """
    given = {
        "recorder": (recorder, Recorder, "make it of the device, and pass the object"),
        "lane": (lane, UpdateLane, "make it of the device, and pass the object"),
        "groups": (groups, Mapping, "name each ParameterGroup"),
    }
    for name, (value, expected, help_for_type) in given.items():
        require_instance(doing, name, value, expected, help_for_type)
    if RunMode.FULL not in modes:
        return
    missing = [
        name
        for name, (value, _, _) in given.items()
        if value is None and (needs_groups or name != "groups")
    ]
    if missing:
        needed = (
            "a recorder, an update lane and groups" if needs_groups else "a recorder and a lane"
        )
        raise ConfigError(
            f"{doing}: {needed} are needed to rewrite attention's arguments at each replay, found "
            f"no {' and no '.join(missing)}; {remedy}"
        )


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
