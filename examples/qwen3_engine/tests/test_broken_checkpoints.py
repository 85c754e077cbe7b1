"""Checkpoints that are broken on disk: each is named, none is touched, and a mended one loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from qwen3_engine.errors import EngineError
from qwen3_engine.qwen3.model_loader import load_model

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
UP = "model.layers.0.mlp.up_proj.weight"
NORM = "model.layers.1.input_layernorm.weight"


def _cut(name: str, keep: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return change


def _write(name: str, data: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return write


def _tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return write


def _index(weight_map: object, *, rest: bool = True) -> Callable[[Path], None]:
    """Write an index in which all other tensors are in the one file."""

    def write(folder: Path) -> None:
        names: object = weight_map
        if rest and isinstance(weight_map, dict):
            names = {**dict.fromkeys(load_file(folder / WEIGHTS), WEIGHTS), **weight_map}
        (folder / INDEX).write_text(json.dumps({"weight_map": names}))

    return write


def _config(**changes: object) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        values = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**values, **changes}))

    return write


def _lengthened_header(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes((2**40).to_bytes(8, "little") + data[8:])


def _offsets_behind_the_end(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header[NORM]["data_offsets"] = [len(data), len(data) + 512]
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def _folder_in_its_place(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty weights": (_write(WEIGHTS, b""), r"model\.safetensors.*not a complete safetensors"),
    "header cut": (_cut(WEIGHTS, 0.001), "not a complete safetensors"),
    "half of the weights": (_cut(WEIGHTS, 0.5), "not a complete safetensors"),
    "zeros": (_write(WEIGHTS, bytes(4096)), "not a complete safetensors"),
    "a pickle": (_write(WEIGHTS, b"\x80\x02}q\x00." + bytes(64)), "not a complete safetensors"),
    "a git-lfs pointer": (
        _write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        "not a complete safetensors",
    ),
    "header too long": (_lengthened_header, "not a complete safetensors"),
    "offsets behind the end": (_offsets_behind_the_end, "not a complete safetensors"),
    "a folder in its place": (_folder_in_its_place, r"expected a file 'model\.safetensors' or"),
    "missing tensor": (_tensors(lambda all_: all_.pop(NORM)), f"expected a tensor '{NORM}'"),
    "unknown tensor": (
        _tensors(lambda all_: all_.update(bias=torch.zeros(2))),
        "1 tensors belong to no weight .* 'bias'",
    ),
    "transposed tensor": (
        _tensors(lambda all_: all_.update({UP: all_[UP].T.contiguous()})),
        r"'model\.layers\.0\.mlp\.up_proj\.weight' must be .*, found torch.bfloat16 of shape",
    ),
    "short tensor": (
        _tensors(lambda all_: all_.update({NORM: all_[NORM][:-1].clone()})),
        rf"'{NORM}' must be .* \(256,\), found .* \(255,\)",
    ),
    "scalar": (_tensors(lambda all_: all_.update({NORM: torch.tensor(1.0)})), r"found .* \(\)"),
    "int8 weights": (
        _tensors(lambda all_: all_.update({NORM: all_[NORM].to(torch.int8)})),
        "must be bfloat16, float16 or float32 .* found torch.int8",
    ),
    "8-bit floats, which want a scale": (
        _tensors(lambda all_: all_.update({NORM: all_[NORM].to(torch.float8_e4m3fn)})),
        "must be bfloat16, float16 or float32 .* found torch.float8_e4m3fn",
    ),
    "index that is no JSON": (_write(INDEX, b"{"), r"index\.json.*weight_map"),
    "index of other bytes": (_write(INDEX, b"\xff\xfe\x00"), r"index\.json.*weight_map"),
    "index with a list": (_index([WEIGHTS]), r"index\.json.*weight_map"),
    "index with numbers": (_index({NORM: 3}), r"index\.json.*weight_map"),
    "index that names a shard that is not there": (
        _index({NORM: "model-00002-of-00002.safetensors"}),
        "names the shard 'model-00002-of-00002.safetensors', which is missing",
    ),
    "index that names what a shard does not hold": (
        _index({"ghost": WEIGHTS}),
        "'ghost' is in 'model.safetensors', which does not hold it",
    ),
    "index without a tensor": (
        _index({"model.norm.weight": WEIGHTS}, rest=False),
        "expected a tensor 'model.embed_tokens.weight'",
    ),
    "index that leads out of the folder": (
        _index({NORM: "../elsewhere.safetensors"}),
        r"index\.json.*'\.\./elsewhere\.safetensors'",
    ),
    "config that is no JSON": (_write(CONFIG, b"{"), r"config\.json"),
    "config of other bytes": (_write(CONFIG, b"\xff\xfe\x00"), r"config\.json"),
    "config that is a list": (_write(CONFIG, b"[1]"), r"config\.json"),
    "config of another model": (_config(model_type="llama"), "only dense 'qwen3'"),
    "config of more layers": (_config(num_hidden_layers=5), "expected a tensor 'model.layers.4"),
    "config of fewer layers": (_config(num_hidden_layers=1), "belong to no weight"),
}


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_checkpoint_is_named_and_left_as_it_is(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(checkpoint_folder, tmp_path / "checkpoint"))
    whole = _bytes_of(folder)
    change, reason = BROKEN[kind]
    change(folder)
    broken = _bytes_of(folder)

    with pytest.raises(EngineError, match=f"(?s){reason}"):
        load_model(folder, device=npu, num_blocks=2, max_length=128)

    assert _bytes_of(folder) == broken != whole


def test_repaired_checkpoint_loads_after_all_these_failures(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoint_folder, tmp_path / "checkpoint"))
    for kind in ("half of the weights", "int8 weights", "config of more layers"):
        kept = tmp_path / "kept"
        shutil.copytree(folder, kept)
        BROKEN[kind][0](folder)
        with pytest.raises(EngineError):
            load_model(folder, device=npu, num_blocks=2, max_length=128)
        shutil.rmtree(folder)
        kept.rename(folder)

    model = load_model(folder, device=npu, num_blocks=2, max_length=128)
    stored = load_file(folder / WEIGHTS)

    assert torch.equal(dict(model.named_parameters())["layers.1.input_norm"].cpu(), stored[NORM])
    model.attention.close()


def test_checkpoint_that_may_not_be_read_is_named(
    checkpoint_folder: Path, npu: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(checkpoint_folder, tmp_path / "checkpoint"))

    def denied(path: Path, **_: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    # The tests may run as a user who may read everything.
    monkeypatch.setattr("qwen3_engine.qwen3.checkpoint.safe_open", denied)

    with pytest.raises(EngineError, match=r"model\.safetensors.*Permission denied"):
        load_model(folder, device=npu, num_blocks=2, max_length=128)
