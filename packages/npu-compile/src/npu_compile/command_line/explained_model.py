"""The model that the command ``explain`` is asked about, made by a function of the user's."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from npu_compile.compilation.explanation import Explanation, explain
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from npu_compile.configuration.config import CompileConfig


def explain_named(name: str, config: CompileConfig | None = None) -> Explanation:
    """Explain the model that a function makes.

    Args:
        name: ``module:function``; modules of the current folder are found too. The function takes
            nothing and returns a mapping of the arguments of `explain`.
        config: in place of the function's.

    Raises:
        ConfigError: there is no such function, or it returns something else.
    """
    arguments = _arguments(name)
    if config is not None:
        arguments["config"] = config
    return explain(**arguments)


def _arguments(name: str) -> dict[str, Any]:
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ConfigError(f"finding the model {name!r}: expected MODULE:FUNCTION")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"finding the model {name!r}: {error}; run the command where the module can be "
            "imported, or set PYTHONPATH"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(
            f"finding the model {name!r}: the module has no function {function_name!r}; it has "
            f"{', '.join(_functions(module)) or 'none'}"
        )
    made = function()
    known = inspect.signature(explain).parameters
    if not isinstance(made, Mapping) or not {"model", "inputs"} <= made.keys() <= known.keys():
        found = sorted(made) if isinstance(made, Mapping) else type(made).__name__
        raise ConfigError(
            f"making the model {name!r}: expected a mapping with model, inputs and, if wished, "
            f"{', '.join(known.keys() - {'model', 'inputs'})}; found {found}"
        )
    return dict(made)


def _functions(module: object) -> list[str]:
    return [name for name, _ in inspect.getmembers(module, inspect.isfunction)]
