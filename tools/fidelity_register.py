"""Keeps the register of docs/fidelity.md in step with the probes of npu-graph-check.

``python tools/fidelity_register.py`` reports differences. ``--write`` gives ids to new rows, writes
which probes observe a row, and regenerates ``register/rows.json`` of npu-graph-testing. The page is
the source of the texts; the probes are the source of the rows that they observe.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fidelity.md"
PACKAGE = ROOT / "packages" / "npu-graph-testing" / "src"
ROWS = PACKAGE / "npu_graph_check" / "register" / "rows.json"

COLUMNS = ("id", "behaviour", "source", "observed by", "seen on hardware")
WORDS = ("own", "profiler", "ranks", "soc")
"""Why no probe observes a row; the page says what each means."""
WORDS_WITH_A_PHRASE = ("inside", "harm", "source", "unwritten")
"""The same, where ``: `` and a phrase have to follow."""
_UNWRITTEN = "unwritten"

PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "Versions and the device": "version",
        "Memory": "memory",
        "The memory check (`CANN_SIM_MEMORY_CHECK`)": "check",
        "Streams and events": "stream",
        "Virtual time": "time",
        "Collectives": "collective",
        "External events": "external",
        "Capture": "capture",
        "Replay": "replay",
        "Task groups and task update": "update",
        "Calls": "call",
        "Arithmetic": "arithmetic",
        "Quantisation": "quantise",
        "Random numbers": "random",
        "Rotary embeddings": "rotary",
        "ATB (Ascend Transformer Boost)": "atb",
        "FusedInferAttentionScore (FIA)": "fia",
        "SparseFlashAttention (SFA)": "sfa",
        "SparseFlashMla (vllm-ascend's own)": "smla",
        "FusedInferAttentionScoreV2Sink (vllm-ascend's own)": "sink",
        "KvQuantSparseFlashAttention": "kvquant",
        "MlaProlog": "prolog",
        "Lightning indexer": "indexer",
        "Gated delta rule": "delta",
        "FlashAttentionScore": "flash",
        "Mixture of experts": "moe",
        "NZ tensors": "nz",
        "KV caches": "cache",
        "Assumptions of attn-update's updaters": "updater",
    }
)
"""What the ids of a section begin with."""


def observing_probes() -> dict[str, list[str]]:
    """Return the ids of the probes that observe each row."""
    sys.path.insert(0, str(PACKAGE))
    try:
        from npu_graph_check.probes.table import all_probes  # noqa: PLC0415
    finally:
        sys.path.remove(str(PACKAGE))
    observed = defaultdict(list)
    for probe in all_probes():
        for row in probe.rows:
            observed[row].append(probe.id)
    return dict(observed)


def in_step(text: str, observed: Mapping[str, list[str]]) -> str:
    """Return the page with ids for all rows, and with the probes that observe them.

    Args:
        text: of the page.
        observed: probes by row.

    Raises:
        ValueError: a table is in a section without a prefix, or has other columns.
    """
    lines, taken = text.splitlines(), Counter[str]()
    for _, cells in _rows(lines):
        if len(cells) == len(COLUMNS):
            prefix, _, number = cells[0].rpartition("-")
            taken[prefix] = max(taken[prefix], int(number))
    section = ""
    for index, line in enumerate(lines):
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith(("| behaviour |", "| id |")):
            lines[index] = _line(COLUMNS)
        elif line.startswith("|---"):
            lines[index] = "|---" * len(COLUMNS) + "|"
        elif line.startswith("| "):
            lines[index] = _line(_row_in_step(_cells(line), section, taken, observed))
    return "\n".join(lines) + "\n"


def _row_in_step(
    cells: list[str], section: str, taken: Counter[str], observed: Mapping[str, list[str]]
) -> list[str]:
    if len(cells) != len(COLUMNS):
        prefix = PREFIXES.get(section)
        if prefix is None:
            raise ValueError(f"{section!r} has no prefix for the ids of its rows")
        taken[prefix] += 1
        behaviour, source = cells
        reason = "own" if source in {"own", "the simulator's own"} else _UNWRITTEN
        cells = [f"{prefix}-{taken[prefix]}", behaviour, source, reason, ""]
    probes = ", ".join(f"`{probe}`" for probe in observed.get(cells[0], ()))
    if probes:
        cells[3] = probes
    elif cells[3].startswith("`"):
        cells[3] = _UNWRITTEN
    return cells


def register(text: str) -> dict[str, dict[str, str]]:
    """Return the rows of the page by id."""
    names = ("behaviour", "source", "observed")
    return {
        cells[0]: dict(zip(names, cells[1:4], strict=True))
        for _, cells in _rows(text.splitlines())
        if len(cells) == len(COLUMNS)
    }


def problems(text: str, observed: Mapping[str, list[str]]) -> list[str]:
    """Return the problems that a person must fix, because `in_step` cannot decide."""
    ids = [cells[0] for _, cells in _rows(text.splitlines())]
    found = [
        f"the id {each} is used {count} times" for each, count in Counter(ids).items() if count > 1
    ]
    found += [
        f"the probes {', '.join(probes)} name the row {row}, which is not there"
        for row, probes in observed.items()
        if row not in ids
    ]
    for row, entry in register(text).items():
        if row in observed:
            continue
        word, _, phrase = entry["observed"].partition(": ")
        if word in WORDS_WITH_A_PHRASE and not phrase:
            found.append(f"{row}: expected '{word}: ' and a phrase that says why no probe sees it")
        elif word not in (*WORDS, *WORDS_WITH_A_PHRASE):
            words = ", ".join((*WORDS, *WORDS_WITH_A_PHRASE))
            found.append(f"{row}: expected a probe or one of {words}, found {word!r}")
    return found


def _rows(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    for index, line in enumerate(lines):
        if line.startswith("| ") and not line.startswith(("| behaviour |", "| id |")):
            yield index, _cells(line)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Compare, or write; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    observed, text = observing_probes(), PAGE.read_text(encoding="utf-8")
    wanted = in_step(text, observed)
    rows = json.dumps(register(wanted), indent=1, ensure_ascii=False) + "\n"
    if write:
        PAGE.write_text(wanted, encoding="utf-8")
        ROWS.write_text(rows, encoding="utf-8")
    found = problems(wanted, observed)
    if not write and (wanted != text or rows != ROWS.read_text(encoding="utf-8")):
        found.append("not in step: run `python tools/fidelity_register.py --write`")
    sys.stderr.writelines(f"{each}\n" for each in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
