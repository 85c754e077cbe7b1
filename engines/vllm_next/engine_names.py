"""Which names of the engine the adapter uses, and which of them the installed release has not.

Run as ``cann-sim run -- python -m engines.vllm_next.engine_names``. Looked for are what the modules
of the adapter import from vLLM and vllm-ascend, the methods of the engine's classes that it
overrides or calls, with the arguments that they take, and the attributes that it reads from their
objects: what an object is given in the engine's own ``self.name = ...`` counts. What is read from
other objects of the engine, such as a step's metadata, is not seen here.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.vllm.without_device.stand_ins import set_environment
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINE = ("vllm", "vllm_ascend")


@dataclass
class Found:
    """Names that were looked up.

    Attributes:
        used: Names of the engine, each with the place that uses it.
        gone: Names that do not exist, with the module of the adapter.
    """

    used: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)

    def note(self, name: str, where: str, *, is_there: bool) -> None:
        """Note a name of the engine that is used somewhere."""
        self.used.add(name)
        if not is_there:
            self.gone.append(f"{where}: {name}")


def look_up(folder: Path, package: str) -> Found:
    """Look up the engine's names that the modules of a folder use.

    Args:
        folder: Of a package.
        package: Its name.
    """
    found = Found()
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text())
        look_up_imports(tree, path.name, found)
        try:
            module = importlib.import_module(f"{package}.{path.stem}")
        except ImportError:
            continue  # what it lacks was noted here, or in the module that it imports
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                look_up_class(node, getattr(module, node.name), path.name, found)
    return found


def look_up_imports(tree: ast.Module, where: str, found: Found) -> None:
    """Look up what a module imports from the engine."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not is_of_engine(node.module or ""):
            continue
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            found.note(name, where, is_there=is_there(str(node.module), alias.name))


def is_of_engine(module: str) -> bool:
    """Return whether a module is the engine's."""
    return module.partition(".")[0] in ENGINE


def is_there(module: str, name: str) -> bool:
    """Return whether the engine has a module with a name in it."""
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    if hasattr(owner, name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def look_up_class(node: ast.ClassDef, made: type, where: str, found: Found) -> None:
    """Look up the names that a class uses of its base classes in the engine."""
    bases = [each for each in made.__mro__[1:] if is_of_engine(each.__module__)]
    if not bases:
        return
    base = bases[0]
    given = {name for each in made.__mro__ for name in attributes_given(each)}
    known = {name for each in bases for name in each.__dict__} | given
    own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            name = method.name
            is_own = name.startswith("_") and not name.startswith("__") and name not in known
            if not is_own:
                what = f"{base.__qualname__}.{name}"
                found.note(what, where, is_there=any(hasattr(each, name) for each in bases))
                look_up_arguments(made, base, name, where, found)
    for name in attributes_read(node):
        if name not in own:
            what = f"{base.__qualname__}.{name}"
            found.note(what, where, is_there=name in known or hasattr(made, name))


def look_up_arguments(made: type, base: type, name: str, where: str, found: Found) -> None:
    """Check that an overriding method accepts the arguments of the engine's own."""
    if name.startswith("__"):
        return
    theirs = inspect.getattr_static(base, name, None)
    if not inspect.isfunction(theirs):
        return
    wanted = inspect.signature(theirs).parameters
    taken = inspect.signature(getattr(made, name)).parameters
    kinds = {each.kind for each in taken.values()}
    is_open = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    what = f"{base.__qualname__}.{name}({', '.join(wanted)})"
    found.note(what, where, is_there=is_open or len(taken) >= len(wanted))


def attributes_given(made: type) -> Iterator[str]:
    """Yield the attributes that the methods of a class give their object."""
    try:
        tree = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(made)}"))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        if is_of_self(node) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def attributes_read(node: ast.AST) -> set[str]:
    """Return the attributes that methods read from their object."""
    return {
        each.attr for each in ast.walk(node) if is_of_self(each) and isinstance(each.ctx, ast.Load)
    }


def is_of_self(node: Any) -> bool:
    """Return whether a node is an attribute of `self`, or of `super()`."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value
    is_super = (
        isinstance(owner, ast.Call)
        and isinstance(owner.func, ast.Name)
        and owner.func.id == "super"
    )
    return is_super or (isinstance(owner, ast.Name) and owner.id == "self")


def main() -> int:
    """Print the missing names; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="of the adapter, as v0_23; default: that of this release")
    options = parser.parse_args()
    set_environment()
    kept = stand_ins.prepare()
    # In the engine's own order: its modules import each other.
    importlib.import_module("vllm_ascend.worker.worker")
    adapter = importlib.import_module("vllm_npu_graph.options")
    folder = options.folder or adapter.release_folder()
    package = f"vllm_npu_graph.{folder}"
    found = Found()
    for name, path in (
        (package, Path(str(adapter.__file__)).parent / folder),
        ("vllm_npu_graph", Path(str(adapter.__file__)).parent),
    ):
        looked = look_up(path, name)
        found.used |= looked.used
        found.gone += looked.gone
    del kept
    engine = " + ".join(f"{name} {version(name)}" for name in ("vllm", "vllm-ascend"))
    print(f"{engine}: {folder} uses {len(found.used)} names, of which {len(found.gone)} are gone")
    print("\n".join(found.gone))
    return 1 if found.gone else 0


if __name__ == "__main__":
    sys.exit(main())
