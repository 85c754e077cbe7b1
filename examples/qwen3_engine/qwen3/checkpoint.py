"""A folder of safetensors files: one file, or several shards with an index."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open

from qwen3_engine.errors import CheckpointError, MissingCheckpointFileError
from qwen3_engine.qwen3.weight_sources import WeightSource, weight_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from qwen3_engine.qwen3.model_config import Qwen3Config

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"
# Floats of eight bits are left out: they are quantised, and want a scale.
_DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})


class Checkpoint:
    """The tensors of a checkpoint folder, by name; each is read when it is first accessed.

    Args:
        folder: contains ``model.safetensors``, or ``model.safetensors.index.json`` and its shards.

    Raises:
        MissingCheckpointFileError: the folder, both of the two files, or a shard is missing.
        CheckpointError: the index or a file cannot be read, or they contradict each other.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._files = self._find_files()

    @property
    def tensor_names(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(self._files)

    def tensors(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the named tensors on the CPU in their stored dtype, each file opened once.

        Raises:
            CheckpointError: there is no tensor of such a name.
        """
        by_file: dict[Path, list[str]] = {}
        for name in names:
            if name not in self._files:
                near = difflib.get_close_matches(name, sorted(self._files), n=1)
                hint = f"; the nearest name there is {near[0]!r}" if near else ""
                raise CheckpointError(
                    f"reading the checkpoint {str(self.folder)!r}: expected a tensor {name!r}, "
                    f"found none among {len(self._files)}{hint}"
                )
            by_file.setdefault(self._files[name], []).append(name)
        for path, wanted in by_file.items():
            with safe_open(path, framework="pt", device="cpu") as file:
                for name in wanted:
                    yield name, file.get_tensor(name)

    def _find_files(self) -> dict[str, Path]:
        if not self.folder.is_dir():
            raise MissingCheckpointFileError(
                f"opening the checkpoint {str(self.folder)!r}: there is no such folder"
            )
        index = self.folder / _INDEX_FILE
        if index.is_file():
            return self._read_index(index)
        single = self.folder / _SINGLE_FILE
        if not single.is_file():
            raise MissingCheckpointFileError(
                f"opening the checkpoint {str(self.folder)!r}: expected a file {_SINGLE_FILE!r} or "
                f"{_INDEX_FILE!r}, found neither; give a folder as written by save_pretrained"
            )
        return dict.fromkeys(_stored_names(single), single)

    def _read_index(self, index: Path) -> dict[str, Path]:
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            # A shard is next to its index: any other path is not of this checkpoint.
            strange = [file for file in weight_map.values() if Path(file).name != file]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"reading {str(index)!r}: expected a JSON object with 'weight_map', an object of "
                f"tensor names and file names: {error!r}"
            ) from error
        if strange:
            raise CheckpointError(
                f"reading {str(index)!r}: expected names of files in its folder, found "
                f"{strange[0]!r}"
            )
        files = {name: self.folder / file for name, file in weight_map.items()}
        for path in sorted(set(files.values())):
            if not path.is_file():
                raise MissingCheckpointFileError(
                    f"opening the checkpoint {str(self.folder)!r}: the index names the shard "
                    f"{path.name!r}, which is missing; the download may be incomplete"
                )
            missing = {name for name, file in files.items() if file == path} - _stored_names(path)
            if missing:
                raise CheckpointError(
                    f"opening the checkpoint {str(self.folder)!r}: the index says that "
                    f"{min(missing)!r} is in {path.name!r}, which does not hold it"
                )
        return files


def _stored_names(path: Path) -> set[str]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return set(file.keys())
    except SafetensorError as error:
        raise CheckpointError(
            f"reading {str(path)!r}: not a complete safetensors file: {error}"
        ) from error
    except OSError as error:
        raise CheckpointError(f"reading {str(path)!r}: {error}") from error


def load_weights(
    checkpoint: Checkpoint, config: Qwen3Config, parameters: Mapping[str, torch.Tensor]
) -> None:
    """Copy a checkpoint into the parameters of a model, converted to their dtype and device.

    Args:
        checkpoint: every tensor of it must be wanted, every wanted tensor must be in it.
        config: says which tensors there are.
        parameters: for each name of :func:`~qwen3_engine.qwen3.weight_sources.weight_sources` an
            allocated tensor of the fused shape; written in place, owned by the caller.

    Raises:
        CheckpointError: a tensor is missing, unknown, of another shape, or of a dtype that is not
            the plain value of a weight.
    """
    sources = weight_sources(config)
    targets = _part_targets(sources, parameters)
    unknown = checkpoint.tensor_names - targets.keys()
    if config.tie_word_embeddings:
        # Some writers store the tied matrix under both names.
        unknown -= {"lm_head.weight"}
    if unknown:
        raise CheckpointError(
            f"loading the checkpoint {str(checkpoint.folder)!r}: {len(unknown)} tensors belong to "
            f"no weight of a dense Qwen3 model, the first is {min(unknown)!r}"
        )
    for name, tensor in checkpoint.tensors(targets):
        target = targets[name]
        if tensor.shape != target.shape or tensor.dtype not in _DTYPES:
            raise CheckpointError(
                f"loading the checkpoint {str(checkpoint.folder)!r}: the tensor {name!r} must be "
                f"bfloat16, float16 or float32 of shape {tuple(target.shape)}, found "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            )
        target.copy_(tensor.to(target.dtype))


def _part_targets(
    sources: Mapping[str, WeightSource], parameters: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return for each checkpoint tensor the rows of a parameter that it is copied to."""
    targets: dict[str, torch.Tensor] = {}
    for parameter_name, source in sources.items():
        start = 0
        for name, shape in source.parts:
            targets[name] = parameters[parameter_name].detach()[start : start + shape[0]]
            start += shape[0]
    return targets
