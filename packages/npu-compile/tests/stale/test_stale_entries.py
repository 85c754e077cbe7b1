"""Dependencies of an entry besides the model: operators, settings, versions, devices, its file."""

from __future__ import annotations

import dataclasses
import marshal
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from fx_passes import Pipeline
from npu_compile.caching import cache_key
from npu_compile.caching.cache_folder import CacheFolder
from npu_compile.caching.stored_graph import CacheEntry
from npu_graph_runtime import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

X = torch.linspace(-1, 1, 32).reshape(4, 8)
SHAPES = """
EXTRA = 0


def rows(x):
    return x.shape[0] + EXTRA


def plain(x):
    return x.new_empty((rows(x), *x.shape[1:]))
"""


def _plain(x: torch.Tensor) -> Any:
    return torch.ops.stale_tests.plain(x) * 2.0


def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0


def _compiled(
    folder: Path, model: Callable[..., Any] = _twice, **options: Any
) -> npu_compile.CompiledModel:
    pipeline = options.pop("pipeline", None)
    config = {"fuse": pipeline is not None, "mode": "piecewise", "splitting_ops": ["a::b"]}
    return npu_compile.compile_model(
        model,
        {"cache_folder": folder, **config, **options},
        device=FakeDevice(),
        pipeline=pipeline,
    )


def _run(folder: Path, model: Callable[..., Any] = _twice, **options: Any) -> str:
    """Compile a function, call it, see that its value is right, and return where it came from."""
    compiled = _compiled(folder, model, **options)
    assert torch.equal(compiled(X), model(X))
    return str(compiled.reports[-1].cache)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a compilation of `_twice`."""
    folder = tmp_path_factory.mktemp("kept")
    assert "and put into the compile cache" in _run(folder)
    assert _run(folder).startswith("from the compile cache")
    return folder


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "cache")


class Operator:
    """An operator that can be redefined, as another process would define it."""

    def __init__(self) -> None:
        self.library: Any = None

    def define(self, shapes: str = SHAPES, schema: str = "plain(Tensor x) -> Tensor") -> None:
        self.remove()
        self.library = torch.library.Library("stale_tests", "FRAGMENT")  # type: ignore[no-untyped-call]
        self.library.define(schema)
        self.library.impl("plain", lambda x, *_: x.clone(), "CPU")
        module: dict[str, Any] = {"__name__": "stale_shapes"}
        exec(shapes, module)
        torch.library.register_fake("stale_tests::plain", module["plain"], lib=self.library)

    def remove(self) -> None:
        if self.library is not None:
            self.library._destroy()


@pytest.fixture
def operator() -> Iterator[Operator]:
    operator = Operator()
    yield operator
    operator.remove()


OPERATORS: dict[str, Callable[[Operator], None]] = {
    "schema": lambda each: each.define(schema="plain(Tensor x, int extra=0) -> Tensor"),
    "name in the schema": lambda each: each.define(schema="plain(Tensor input) -> Tensor"),
    "code of its shapes": lambda each: each.define(SHAPES.replace("new_empty", "new_zeros")),
    "function behind its shapes": lambda each: each.define(
        SHAPES.replace("x.shape[0] + EXTRA", "EXTRA + x.shape[0]")
    ),
    "constant behind its shapes": lambda each: each.define(
        SHAPES.replace("EXTRA = 0", "EXTRA = False")
    ),
    "built-in hidden behind its shapes": lambda each: each.define(
        SHAPES.replace("EXTRA = 0", "EXTRA = 0\nx = 1\nnew_empty = 2")
    ),
}


def test_operator_that_changed_is_recompiled(operator: Operator, tmp_path: Path) -> None:
    operator.define()
    assert "and put into the compile cache" in _run(tmp_path / "cache", _plain)
    operator.define()
    assert _run(tmp_path / "cache", _plain).startswith("from the compile cache")
    for name, change in OPERATORS.items():
        folder = shutil.copytree(tmp_path / "cache", tmp_path / name)
        change(operator)
        assert "operator stale_tests::plain is not what it was" in _run(folder, _plain), name


OPTIONS: dict[str, dict[str, Any]] = {
    "mode": {"mode": "eager", "pipeline": Pipeline(passes=())},
    "splitting operators": {"splitting_ops": ["a::c"]},
    "pipeline": {"pipeline": Pipeline(passes=())},
    "exact fusions": {"exact_fusions": True},
}
PATCHES: dict[str, tuple[Any, str, Any]] = {
    "Python": (sys, "version", "3.99"),
    "torch": (torch, "__version__", "2.99"),
    "build of torch": (torch.version, "git_version", "another"),
    "torch_npu": (cache_key, "_version_of", lambda _: "another"),
    "device": (cache_key, "device_name", lambda: "npu another SoC"),
    "our packages": (cache_key, "own_folders", tuple),
}


@pytest.mark.parametrize("other", [*OPTIONS, *PATCHES, "settings of Dynamo", "dynamic sizes"])
def test_other_settings_and_versions_are_recompiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    if other in PATCHES:
        monkeypatch.setattr(*PATCHES[other])
    with torch._dynamo.config.patch(specialize_float=other == "settings of Dynamo"):
        if other == "dynamic sizes":
            compiled = npu_compile.compile_model(
                _twice,
                _compiled(folder).config,
                device=FakeDevice(),
                dynamic_arg_dims={"x": (0,)},
            )
            compiled(X)
            cache = str(compiled.reports[-1].cache)
        else:
            cache = _run(folder, **OPTIONS.get(other, {}))

    assert cache.startswith("compiled")
    monkeypatch.undo()
    assert _run(folder).startswith("from the compile cache")


def test_tensors_of_two_devices_have_an_entry_each(folder: Path) -> None:
    for line in ("compiled, and put", "from the compile cache"):
        compiled = _compiled(folder)
        assert compiled(X.to("meta")).device.type == "meta"
        assert str(compiled.reports[-1].cache).startswith(line)
        assert _run(folder).startswith("from the compile cache")


def test_moved_folder_is_found(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    moved = folder.rename(tmp_path / "elsewhere" / "cache")

    assert _run(moved).startswith("from the compile cache")
    assert not folder.exists()


def _entry(folder: Path) -> tuple[str, CacheEntry]:
    (file,) = folder.iterdir()
    key = file.name.partition(".")[0]
    ((_, content),) = CacheFolder(folder).entries(key)
    return key, CacheEntry.from_bytes(content)


FOREIGN: dict[str, Callable[[CacheEntry], bytes]] = {
    "nothing": lambda _: b"",
    "other data": lambda _: marshal.dumps({"version": 1}),
    "half": lambda entry: entry.to_bytes()[:200],
    "part missing": lambda entry: marshal.dumps(
        {key: each for key, each in dataclasses.asdict(entry).items() if key != "graph"}
    ),
    "part of another kind": lambda entry: dataclasses.replace(entry, read=7).to_bytes(),  # type: ignore[arg-type]
    "graph without code": lambda entry: dataclasses.replace(
        entry,
        graph=dataclasses.replace(entry.graph, code=None),  # type: ignore[arg-type]
    ).to_bytes(),
    "plan that is none": lambda entry: dataclasses.replace(entry, plan="[").to_bytes(),
    "fusions that are none": lambda entry: dataclasses.replace(entry, fusions=b"junk").to_bytes(),
    "operator that is not there": lambda entry: dataclasses.replace(
        entry, operators={"nowhere::nothing": "schema"}
    ).to_bytes(),
    "module that is not there": lambda entry: dataclasses.replace(
        entry, modules={"__import_nowhere": ("module", "nowhere")}
    ).to_bytes(),
}


@pytest.mark.filterwarnings("ignore::npu_compile.CompileCacheWarning")
@pytest.mark.parametrize("kind", FOREIGN)
def test_valid_file_with_foreign_content_is_recompiled(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    key, entry = _entry(folder)
    CacheFolder(tmp_path / "foreign").store(key, FOREIGN[kind](entry))

    assert _run(tmp_path / "foreign").startswith("compiled")


def test_entry_of_another_model_under_this_key_is_recompiled(folder: Path, tmp_path: Path) -> None:
    def _other(x: torch.Tensor) -> torch.Tensor:
        return x * 3.0

    _run(tmp_path / "other", _other)
    _, entry = _entry(tmp_path / "other")
    key, _ = _entry(folder)
    CacheFolder(tmp_path / "mixed").store(key, entry.to_bytes())

    assert "does not fit" in _run(tmp_path / "mixed")


PROCESS = """
import sys
import torch
import npu_compile
from npu_graph_runtime import FakeDevice
from stale_process import double

compiled = npu_compile.compile_model(
    double,
    {"mode": "piecewise", "splitting_ops": ["a::b"], "fuse": False, "cache_folder": sys.argv[1]},
    device=FakeDevice(),
)
x = torch.linspace(-1, 1, 32).reshape(4, 8)
assert torch.equal(compiled(x), double(x))
print(compiled.reports[0].cache)
"""


def test_processes_that_write_at_once_leave_what_the_next_one_finds(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if not request.config.getoption("--each-alone"):
        pytest.skip("four processes, of the long session")
    source = tmp_path / "stale_process.py"
    source.write_text("def double(x):\n    return x * 2.0\n")
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "cache")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    for process in [started(), started()]:
        said, _ = process.communicate()
        assert process.returncode == 0
        assert "put into the compile cache" in said or said.startswith("from the compile cache")
    assert started().communicate()[0].startswith("from the compile cache")
    source.write_text("def double(x):\n    return x * 2.5\n")
    assert started().communicate()[0].startswith("compiled, and put into the compile cache")
