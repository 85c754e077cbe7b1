"""The names in the signature of a name: types of arguments and results."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from name_users.exported_names import definition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sessions.package import Package


def names_in_signature(package: Package, module: str, name: str) -> set[str]:
    """Return the names in the annotations of a definition.

    Those are of parameters, returned values and fields; of a class, of its public members, and of
    those that it inherits in its package; of a variable, as a union of types, those of its value.

    Args:
        package: The package that has the module.
        module: Its dotted name.
        name: A function, a class or a variable of it.
    """
    found = definition(package, module, name)
    if found is None:
        return set()
    module, statement = found
    names = {each for part in _parts(statement) for each in _names(part)}
    for base in statement.bases if isinstance(statement, ast.ClassDef) else []:
        for each in _names(base):
            names |= {each} | names_in_signature(package, module, each)
    return names


def _parts(statement: ast.stmt) -> Iterator[ast.expr]:
    match statement:
        case ast.FunctionDef(args=args, returns=returns):
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            yield from (each.annotation for each in every if each and each.annotation)
            if returns is not None:
                yield returns
        case ast.ClassDef(body=body):
            for member in body:
                target = getattr(member, "target", None)
                name = getattr(member, "name", getattr(target, "id", ""))
                if not name.startswith("_") or name == "__init__":
                    yield from _parts(member)
        case ast.AnnAssign(annotation=annotation, value=value):
            yield annotation
            if value is not None:
                yield value
        case ast.Assign(value=value):
            yield value


def _names(part: ast.expr) -> Iterator[str]:
    for node in ast.walk(part):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
