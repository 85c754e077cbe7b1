"""Check the architecture rules that no linter has.

Run as ``python tools/check_architecture.py FOLDER...``; every Python file below the folders is
parsed (not imported) and checked for: module-level or class-level mutable state, ``global``
statements, work at import, attributes of imported modules being assigned (patching), and file names
that say nothing. Tests are exempt from all but the names.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EMPTY_NAMES = frozenset({"utils", "util", "common", "helpers", "helper", "misc", "base", "manager"})
MUTABLE_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = frozenset(
    {
        "list",
        "dict",
        "set",
        "bytearray",
        "defaultdict",
        "deque",
        "Counter",
        "OrderedDict",
        "WeakSet",
        "WeakKeyDictionary",
        "WeakValueDictionary",
        "ContextVar",
        "local",
        "Lock",
        "RLock",
    }
)


def _called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Subscript):
        function = function.value
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return _called_name(value) in MUTABLE_CALLS
    return isinstance(value, MUTABLE_DISPLAYS)


def _assigned_names(statement: ast.stmt) -> tuple[list[str], ast.expr | None]:
    if isinstance(statement, ast.Assign):
        return [ast.unparse(target) for target in statement.targets], statement.value
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)], statement.value
    return [], None


def _mutable_state(tree: ast.Module) -> Iterator[tuple[int, str]]:
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for body in bodies:
        for statement in body:
            names, value = _assigned_names(statement)
            if names and names != ["__all__"] and _is_mutable(value):
                yield statement.lineno, f"mutable state `{names[0]}` outside an object"
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno, f"global statement for `{', '.join(node.names)}`"


def _work_at_import(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield statement.lineno, f"call of `{_called_name(statement.value)}` at import"
        if isinstance(statement, (ast.For, ast.While, ast.With)):
            yield statement.lineno, "work at import"


def _imported_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def _root_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _patches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    modules = _imported_names(tree)
    for node in ast.walk(tree):
        targets: list[ast.expr]
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and _called_name(node) == "setattr" and node.args:
            targets = [ast.Attribute(value=node.args[0], attr="...")]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Attribute) and _root_name(target) in modules:
                yield node.lineno, f"attribute of the module `{_root_name(target)}` is assigned"


def violations(path: Path) -> Iterator[str]:
    """Yield ``path:line: what is wrong`` for each rule that the file breaks."""
    if path.stem in EMPTY_NAMES:
        yield f"{path}:1: the file name `{path.name}` says nothing; name it after its main noun"
    if "tests" in path.parts:
        return
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for check in (_mutable_state, _work_at_import, _patches):
        for line, what in check(tree):
            yield f"{path}:{line}: {what}"


def main(folders: list[str]) -> int:
    """Print every violation below the folders; return 1 if there is one."""
    files = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    if not files:
        print(f"check_architecture: no Python file below {folders}", file=sys.stderr)
        return 2
    found = [violation for path in files for violation in violations(path)]
    print("\n".join(found) if found else f"check_architecture: {len(files)} files, no violation")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
