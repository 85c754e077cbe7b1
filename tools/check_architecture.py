"""Check the architecture rules that no linter has.

Run as ``python tools/check_architecture.py FOLDER...``; every Python file below the folders is
parsed (not imported) and checked for: module-level or class-level mutable state, ``global``
statements, work at import, attributes of imported modules being assigned (patching), private names
of other people's modules and objects outside their places, file names that say nothing, and folders
of more than a dozen modules. Tests are exempt from all but the names.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MOST_FILES_IN_A_FOLDER = 12
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

PRIVATE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "attn_update/torch_internals.py": "torch: schemas of operators, dispatch modes",
        "fx_passes/functional/mutable_calls.py": "torch: how AOTAutograd spells what is written",
        "fx_passes/inductor/post_grad_passes.py": "torch: Inductor's custom passes",
        "fx_passes/torch_internals.py": "torch: operators, fake tensors, graphs",
        "npu_compile/torch_internals.py": "torch: what Dynamo compiles and by what, operators",
        "npu_graph_check/child.py": "os: `_exit`, which is documented and waits for no device",
        "npu_graph_check/running/environment.py": "os: `_exit`",
        "npu_graph_check/running/forking_process.py": "os: `_exit`, for a process that was forked",
        "npu_graph_runtime/devices/npu.py": "torch_npu: everything of it, public or not",
        "npu_graph_runtime/torch_internals.py": "torch: kernels and schemas, for the fake device",
        "piecewise_split/torch_internals.py": "torch: operators and modes in graphs of Dynamo",
        "sglang_npu_graph/marked_functions.py": "SGLang: what a marked function is, and whose",
        "vllm_npu_graph/v0_30/trial_state.py": "vllm-ascend: graphs and KV cache of a trial",
    }
)
"""Files that may use private names of others, and whose; file or package says the versions.

What a version of torch changes is then looked for, and mended, in one file of a package.
"""
NAMED_TUPLE_METHODS = frozenset({"_replace", "_asdict", "_fields", "_make"})


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


def _is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def _own_names(tree: ast.Module) -> set[str]:
    """Return the attributes that the file's own classes and functions define."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if _root_name(node) in {"self", "cls"}:
                names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def _operator_namespaces(tree: ast.Module) -> set[str]:
    """Return the names that refer to `torch.ops` or a part of it, whose private names are data."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("torch.ops."):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _private_imports(node: ast.AST) -> Iterator[str]:
    imported: list[str] = []
    if isinstance(node, ast.Import):
        imported = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        imported = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in imported:
        if name.startswith("torch") and any(map(_is_private, name.split("."))):
            yield name


def _private_attribute(node: ast.AST) -> ast.expr | None:
    """Return the object whose private attribute is read, by its name or by a `getattr`."""
    if isinstance(node, ast.Attribute) and _is_private(node.attr):
        return node.value
    if isinstance(node, ast.Call) and _called_name(node) == "getattr" and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and _is_private(name.value):
            return node.args[0]
    return None


def _private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    own = _own_names(tree) | NAMED_TUPLE_METHODS
    operators = _operator_namespaces(tree)
    for node in ast.walk(tree):
        for name in _private_imports(node):
            yield getattr(node, "lineno", 1), f"private name `{name}`"
        owner = _private_attribute(node)
        if owner is None:
            continue
        if isinstance(owner, ast.Name) and owner.id in {"self", "cls"}:
            continue
        if isinstance(node, ast.Attribute) and node.attr in own:
            continue
        is_operator = ast.unparse(owner).startswith("torch.ops") or _root_name(owner) in operators
        if not is_operator:
            yield owner.lineno, f"private name in `{ast.unparse(node)}`"


def _misplaced_private_names(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    found = list(_private_names(tree))
    is_place = "/".join(path.parts[path.parts.index("src") + 1 :]) in PRIVATE_NAMES
    if is_place and not found:
        yield 1, "uses no private name, so PRIVATE_NAMES of this check needs no row of it"
    elif not is_place:
        for line, what in found:
            yield line, f"{what} outside its place (PRIVATE_NAMES of this check)"


def violations(path: Path) -> Iterator[str]:
    """Yield ``path:line: message`` for each rule that the file breaks."""
    if path.stem in EMPTY_NAMES:
        yield f"{path}:1: the file name `{path.name}` says nothing; name it after its main noun"
    if "tests" in path.parts:
        return
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for check in (_mutable_state, _work_at_import, _patches):
        for line, what in check(tree):
            yield f"{path}:{line}: {what}"
    if "src" in path.parts and "cann_sim" not in path.parts:
        for line, what in _misplaced_private_names(path, tree):
            yield f"{path}:{line}: {what}"


def crowded_folders(files: Iterable[Path]) -> Iterator[str]:
    """Yield a message for each folder with too many modules."""
    modules = [
        path for path in files if not path.name.startswith("_") and "tests" not in path.parts
    ]
    for folder, count in sorted(Counter(path.parent for path in modules).items()):
        if count > MOST_FILES_IN_A_FOLDER:
            yield (
                f"{folder}:1: {count} modules in one folder, expected at most "
                f"{MOST_FILES_IN_A_FOLDER}; put those of one part into a folder that names it"
            )


def main(folders: list[str]) -> int:
    """Print every violation below the folders; return 1 if there is one."""
    files = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    if not files:
        print(f"check_architecture: no Python file below {folders}", file=sys.stderr)
        return 2
    found = [violation for path in files for violation in violations(path)]
    found += crowded_folders(files)
    print("\n".join(found) if found else f"check_architecture: {len(files)} files, no violation")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
