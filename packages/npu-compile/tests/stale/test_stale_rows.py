"""The table of `rows`: found before a change, compiled anew or right after it.

The gate takes the rows that Dynamo has few guards on, and compiles one model for each group of
them. With ``--each-alone`` all rows run, each as a model of its own, so that none hides another.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch

import npu_compile
from npu_compile.compilation import compiled_model
from npu_compile.torch_internals import Unsupported
from npu_graph_runtime import FakeDevice
from stale.rows import GUARDED, NOT_ALWAYS_KEPT, WITHOUT_GUARDS, Row, World
from stale.sources import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

X = torch.linspace(-1, 1, 32).reshape(4, 8)
GROUPS = {**WITHOUT_GUARDS, **GUARDED, "not always kept": NOT_ALWAYS_KEPT}
ROWS = {(group, name): row for group, rows in GROUPS.items() for name, row in rows.items()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    each_alone = bool(metafunc.config.getoption("--each-alone"))
    chosen = [key for key in ROWS if each_alone or key[0] in WITHOUT_GUARDS]
    metafunc.parametrize("key", chosen, ids=[": ".join(key) for key in chosen])


class Kept(NamedTuple):
    """A folder that has the compilation of a model with these expressions, or why it has not."""

    expressions: list[str]
    folder: Path
    reason: str = ""


def _compiled(model: Any, folder: Path) -> npu_compile.CompiledModel:
    return npu_compile.compile_model(
        model,
        {"cache_folder": folder, "fuse": False, "mode": "piecewise", "splitting_ops": ["a::b"]},
        device=FakeDevice(),
        dynamic_arg_dims={"x": (0,)},
    )


def _kept(rows: list[Row], folder: Path) -> Kept:
    expressions = list(dict.fromkeys(row.expression for row in rows))
    compiled = _compiled(loaded(expressions), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STALE_NUMBER", "4")
        try:
            compiled(X)
        except Unsupported as error:
            return Kept(expressions, folder, f"Dynamo does not trace it: {error}")
    cache = str(compiled.reports[0].cache)
    return Kept(expressions, folder, "" if "and put into the compile cache" in cache else cache)


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that finds the compilation of a row."""
    made: dict[str, Kept] = {}
    each_alone = bool(request.config.getoption("--each-alone"))

    def find(key: tuple[str, str]) -> Kept:
        if each_alone:
            return _kept([ROWS[key]], tmp_path_factory.mktemp("alone"))
        if key[0] not in made:
            rows = list(GROUPS[key[0]].values())
            made[key[0]] = _kept(rows, tmp_path_factory.mktemp("group"))
        return made[key[0]]

    return find


@pytest.fixture(autouse=True)
def hash_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not hash our packages for each of some hundred models; `test_stale_entries` does."""
    monkeypatch.setattr(compiled_model, "key_of_software", lambda *_: "software")


@pytest.fixture
def state_of_torch() -> Iterator[None]:
    yield
    torch.set_autocast_cache_enabled(True)
    torch._C._set_cublas_allow_tf32(False)
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")


def _outcome(call: Callable[..., Any]) -> list[Any]:
    try:
        return list(call(X))
    except Exception as error:  # noqa: BLE001 - what eager raises, a compiled model may raise too
        return [f"{type(error).__name__}: {error}"]


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        isinstance(left, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and left.dtype == right.dtype
        and torch.equal(left, right)
        for left, right in zip(one, other, strict=True)
    )


# Dynamo says that it looks through `functools.lru_cache`.
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.usefixtures("state_of_torch")
def test_stale_compilation_is_not_used(
    kept: Callable[[tuple[str, str]], Kept],
    key: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = ROWS[key]
    expressions, folder, reason = kept(key)
    if key[0] == "not always kept" and reason:
        pytest.skip(f"compiled anew each time: {reason}")
    assert not reason
    monkeypatch.setenv("STALE_NUMBER", "4")
    # What the cache does not have runs eagerly here, at once.
    with torch.compiler.set_stance("force_eager"):
        model = loaded(expressions)
        found = _compiled(model, folder)
        before = _outcome(found)
        assert [str(report.cache)[:22] for report in found.reports] == ["from the compile cache"]

        row.change(
            World(model, sys.modules["stale_library"], sys.modules["stale_model"], monkeypatch)
        )

        expected = _outcome(model)
        assert len(expected) == len(before), expected
        assert not _same(before, expected)
        assert _same(_outcome(found), expected)
        assert _same(_outcome(_compiled(model, folder)), expected)
