"""Which public names a file of Python and a page use."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from name_users.exported_names import PublicName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A block between fences, or code within a line.
CODE = re.compile(r"^ *```\w*\n(.*?)^ *```|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


def used_in_code(tree: ast.Module, modules: Mapping[str, str]) -> set[PublicName]:
    """Return the public names that a file imports or reaches, or names in a string.

    Args:
        tree: The file.
        modules: Every public module, with the package that has it.
    """
    stands_for: dict[str, str] = {}  # a name of the file, and what it is bound to
    dotted: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.partition(".")[0]
                    stands_for[alias.asname or first] = alias.name if alias.asname else first
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    stands_for[alias.asname or alias.name] = f"{module}.{alias.name}"
                    dotted.add(f"{module}.{alias.name}")
            case ast.Constant(value=str(text)):
                dotted.update(DOTTED.findall(text.replace(":", ".")))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (path := _path(node)):
            first, _, rest = path.partition(".")
            if first in stands_for:
                dotted.add(f"{stands_for[first]}.{rest}")
    return {each for path in dotted for each in _names_in(path, modules)}


def used_on_page(
    text: str, exports: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> Iterator[PublicName]:
    """Yield the public names in the code of a page whose code or text names their package.

    Args:
        text: The page, in Markdown.
        exports: Every package, with its public modules and their names.
    """
    code = " ".join(block or inline for block, inline in CODE.findall(text))
    words = set(re.findall(r"\w+", code))
    for package, modules in exports.items():
        if package in text or package.replace("-", "_") in text:
            for name in {name for names in modules.values() for name in names}:
                if name in words:
                    yield PublicName(package, name)


def _path(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute) if before := _path(value):
            return f"{before}.{attribute}"
    return None


def _names_in(dotted: str, modules: Mapping[str, str]) -> Iterator[PublicName]:
    parts = dotted.split(".")
    for end in range(1, len(parts)):
        package = modules.get(".".join(parts[:end]))
        if package is not None:
            yield PublicName(package, parts[end])
