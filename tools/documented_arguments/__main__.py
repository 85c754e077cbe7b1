r"""Generates the tables of the arguments that the device's operators accept from CANN's documents.

Run in the folder `tools`:

    python -m documented_arguments --build <folder that `cann-sim build` prints> \\
        --into <native/operators/documented> \\
        --math <checkout of ops-math> --nn <ops-nn> --transformer <ops-transformer> --cv <ops-cv>

It writes `documented_<repository>.h` for the operators that the build implements, and lists those
without facts: `documented_source.h`, which is written by hand, has a row or an exemption for each
of these.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cann_sim.inventory.simulated_operators import simulated_arguments
from documented_arguments.argument import ANY_RANK
from documented_arguments.corrections import ADDED, CORRECTIONS
from documented_arguments.document import read_arguments
from documented_arguments.header import render
from documented_arguments.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence

    from documented_arguments.argument import Argument

REPOSITORIES = ("math", "nn", "transformer", "cv")
TENSORS = frozenset(
    {
        *(
            "Tensor",
            "OptionalTensor",
            "ResizableTensor",
            "TensorAsList",
            "TensorInList",
            "OptionalTensorInList",
        ),
        *("TensorList", "OptionalTensorList"),
    }
)
# A document of fewer characters only says where else to look.
LEAST_CHARACTERS = 400


def checked(
    operator: str, arguments: Sequence[Argument], simulated: Sequence[tuple[str, str]]
) -> tuple[Argument, ...]:
    """Return the rows, renamed to the simulator's names of the arguments.

    Raises:
        ValueError: The document has another number of tensors than the simulator.
    """
    tensors = [name for kind, name in simulated if kind in TENSORS]
    if len(tensors) != len(arguments):
        names = [argument.name for argument in arguments]
        message = f"{operator}: the document has the tensors {names}, the simulator {tensors}"
        raise ValueError(message)
    return tuple(argument.renamed(name) for argument, name in zip(arguments, tensors, strict=True))


def from_source(argument: Argument, sources: str, definitions: str) -> Argument:
    """Return the row, corrected by the sources.

    A document may require contiguous tensors although the operator makes them contiguous by itself.
    A
    document that starts at one dimension often means a scalar as well, which torch_npu passes as a
    tensor of no dimensions: it is rejected only if the source checks. A tensor in the format NZ has
    the
    dimensions of its matrix, while documents count those of its blocks.
    """
    called = rf"(?:Contiguous|ViewCopy)\w*\([^;]*\b{argument.name}\b"
    strided = argument.strided or bool(
        "AutoContiguous" in definitions or re.search(called, sources)
    )
    looked_at = rf"OP_CHECK_(?:MIN_DIM|WRONG_DIMENSION)\(\s*(?:\w+(?:\.|->))?{argument.name}\b"
    ranks = ANY_RANK if not argument.plain else argument.ranks
    if min(ranks) == 1 and len(ranks) > 1 and sources and not re.search(looked_at, sources):
        ranks |= {0}
    return argument.changed(strided=strided, ranks=ranks)


def operator_rows(
    operator: str, repository: Repository, simulated: Sequence[tuple[str, str]]
) -> tuple[Argument, ...]:
    """Return the rows of one operator.

    Raises:
        ValueError: The document cannot be read.
    """
    text = repository.read(repository.documents[operator])
    sources = repository.sources(operator)
    definitions = repository.definitions(operator)
    corrections = CORRECTIONS.get(operator, {})
    rows = []
    for argument in read_arguments(text, operator, known=frozenset(corrections)):
        row = from_source(argument, sources, definitions)
        if argument.name in corrections:
            row = corrections[argument.name].apply(row)
        if added := ADDED.get(operator, {}).get(argument.name):
            rows.append(added)
        rows.append(row)
    if unknown := corrections.keys() - {row.name for row in rows}:
        message = f"{operator}: corrections of {sorted(unknown)}, which are no tensors of it"
        raise ValueError(message)
    return checked(operator, rows, simulated)


def main() -> int:
    """Write the headers; the result is the number of operators without facts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    for name in REPOSITORIES:
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    written = (options.into / "documented_source.h").read_text()
    by_hand = set(re.findall(r"CANN_SIM_(?:UN)?DOCUMENTED\((\w+)", written))
    simulated = simulated_arguments(options.build.glob("common/libcann_sim_*.so"))
    missing = {name: "no document" for name in simulated if name not in by_hand}
    for name in REPOSITORIES:
        repository = Repository(getattr(options, name))
        tables = {}
        for operator in [found for found in missing if found in repository.documents]:
            if len(repository.read(repository.documents[operator])) < LEAST_CHARACTERS:
                continue
            try:
                tables[operator] = operator_rows(operator, repository, simulated[operator])
            except ValueError as error:
                missing[operator] = str(error)
            else:
                del missing[operator]
        comment = (
            f"Made by tools/documented_arguments from the documents of ops-{name} at\n"
            f"{repository.commit}. Do not edit: make it again."
        )
        (options.into / f"documented_{name}.h").write_text(render(comment, tables))
        sys.stdout.write(f"{len(tables)} operators of ops-{name}\n")
    for operator, reason in missing.items():
        sys.stdout.write(f"{operator}: {reason}\n")
    return len(missing) != 0


if __name__ == "__main__":
    sys.exit(main())
