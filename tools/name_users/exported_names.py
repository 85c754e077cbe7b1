"""The names that packages promise to users, and where each is defined."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessions.package import Package


@dataclass(frozen=True, order=True)
class PublicName:
    """A name that users may import.

    Attributes:
        package: The distribution.
        name: The name; modules of one package that export the same name share it.
    """

    package: str
    name: str


class NoModuleError(Exception):
    """A package lists a public module that does not exist."""


def exported_names(package: Package) -> dict[str, tuple[str, ...]]:
    """Return the public modules of a package, each with the names in its ``__all__``.

    ``__version__`` is left out. Of a module without ``__all__`` all that it defines counts, except
    private names and hooks of pytest.

    Raises:
        NoModuleError: A listed module has no file.
    """
    found: dict[str, tuple[str, ...]] = {}
    for module in package.public_modules:
        path = _file_of(package, module)
        if path is None:
            raise NoModuleError(f"{package.name}: pyproject.toml lists {module}, which has no file")
        found[module] = tuple(name for name in _exported(parsed(path)) if name != "__version__")
    return found


def definition(package: Package, module: str, name: str) -> tuple[str, ast.stmt] | None:
    """Return the statement that defines a name of a module, and the module that has it.

    Args:
        package: The package that has the module.
        module: Its dotted name. Where it imports the name, the module that defines it is looked
            for in the same package.
        name: A function, a class or a variable.
    """
    path = _file_of(package, module)
    for statement in [] if path is None else parsed(path).body:
        if _defined(statement) == name:
            return module, statement
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return definition(package, str(statement.module), alias.name)
    return None


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return _parsed(path.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _file_of(package: Package, module: str) -> Path | None:
    base = package.folder / "src" / Path(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.exists():
            return path
    return None


def _exported(tree: ast.Module) -> list[str]:
    for statement in tree.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                return [str(name) for name in ast.literal_eval(value)]
    # pytest calls its hooks by their names.
    names = [name for name in map(_defined, tree.body) if name is not None]
    return [name for name in names if not name.startswith(("_", "pytest_"))]


def _defined(statement: ast.stmt) -> str | None:
    match statement:
        case (
            ast.FunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
        ):
            return name
    return None
