"""Imports a function of the user's, named as ``module:function`` in a configuration or command."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


def named_function(name: str, *, doing: str) -> Callable[[], object]:
    """Import a module and return one of its functions.

    Args:
        name: ``module:function``.
        doing: The operation that needs the function, for the error message.

    Raises:
        ConfigError: The module or function does not exist.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ConfigError(f"{doing} {name!r}: expected MODULE:FUNCTION")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{doing} {name!r}: {error}; run the program where the module can be imported, or set "
            "PYTHONPATH"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [each for each, _ in inspect.getmembers(module, inspect.isfunction)]
        raise ConfigError(
            f"{doing} {name!r}: the module has no function {function_name!r}; it has "
            f"{', '.join(known) or 'none'}"
        )
    found: Callable[[], object] = function
    return found
