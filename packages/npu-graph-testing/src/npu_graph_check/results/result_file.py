"""The file of results: whole at any time, whatever ends the program that writes it."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from npu_graph_check.errors import ResultFileError
from npu_graph_check.results.probe_result import NOT_TRIED, ProbeResult

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """The results of a run.

    Attributes:
        environment: versions, device and settings, as text by name.
        probes: results of the probes, in the order in which they ran.
        begun: start of the run, ISO 8601 in UTC.
        ended: why it ended: ``complete``, or a reason; empty while it runs, and if it was
            killed.
    """

    environment: dict[str, str]
    probes: tuple[ProbeResult, ...]
    begun: str
    ended: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return all of it as plain data that JSON can hold."""
        return {"schema": SCHEMA, "kind": "npu-graph-check", **dataclasses.asdict(self)}


def write_results(path: Path, results: Results) -> None:
    """Write a file of results, or leave the one that is there as it is.

    Raises:
        ResultFileError: the file cannot be written.
    """
    if not path.name:
        raise _unwritable(path, "it is a folder")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(results.to_mapping(), indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise _unwritable(path, error.strerror) from error
    finally:
        with suppress(OSError):  # it is not there if all went well
            beside.unlink()


def keep_previous(path: Path) -> None:
    """Rename a file of results in which a probe was tried, since a new run takes its place.

    Its new name ends with ``.previous``.

    Raises:
        ResultFileError: what is there is no file of results.
    """
    if not path.is_file():
        if path.exists():
            raise _unwritable(path, "it is a folder or a device")
        return
    try:
        held = read_results(path)
    except ResultFileError as error:
        raise ResultFileError(
            f"writing the results {str(path)!r}: expected no file there, or one of results, whose "
            f"place they take; name another with --output ({error})"
        ) from error
    if any(each.verdict != NOT_TRIED for each in held.probes):
        try:
            path.replace(path.with_name(f"{path.name}.previous"))
        except OSError as error:
            raise _unwritable(path, error.strerror) from error


def _unwritable(path: Path, why: str | None) -> ResultFileError:
    return ResultFileError(
        f"writing the results {str(path)!r}: {why}; name a file in a folder that exists and may be "
        "written, with --output"
    )


def read_results(path: Path) -> Results:
    """Read a file of results.

    Raises:
        ResultFileError: there is no such file, it cannot be read, or is no such file.
    """
    doing = f"reading the results {str(path)!r}"
    try:
        mapping = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise ResultFileError(f"{doing}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ResultFileError(
            f"{doing}: expected JSON as `npu-graph-check run` writes it, found {error}"
        ) from error
    if not isinstance(mapping, dict) or mapping.get("kind") != "npu-graph-check":
        raise ResultFileError(f"{doing}: expected a file of npu-graph-check, found other JSON")
    if mapping.get("schema") != SCHEMA:
        raise ResultFileError(
            f"{doing}: expected schema {SCHEMA}, found {mapping.get('schema')!r}; use the version "
            "of npu-graph-testing that wrote it"
        )
    try:
        results = Results(
            environment={str(key): str(value) for key, value in mapping["environment"].items()},
            probes=tuple(ProbeResult.from_mapping(each) for each in mapping["probes"]),
            begun=str(mapping["begun"]),
            ended=str(mapping["ended"]),
        )
        ids = [each.id for each in results.probes]
        if len(set(ids)) < len(ids):
            raise ValueError("a probe twice")  # noqa: TRY301
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ResultFileError(
            f"{doing}: expected the fields of schema {SCHEMA}, found {type(error).__name__}: "
            f"{error}"
        ) from error
    return results


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which JSON has not")
