"""The dependencies known before a compilation: versions, settings, weights and the call."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import attn_update
import fx_passes
import npu_graph_runtime
import piecewise_split
from npu_compile import __about__ as npu_compile
from npu_compile.caching.code_reader import name_of_class, plain_text
from npu_compile.caching.value_content import tensor_layout
from npu_compile.torch_internals import (
    global_state,
    num_torch_function_modes,
    settings_of_dynamo,
    version_of_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_compile.configuration.config import CompileConfig


def own_folders() -> tuple[str, ...]:
    """Return the folders with the sources of our packages."""
    packages = (attn_update, fx_passes, npu_compile, npu_graph_runtime, piecewise_split)
    return tuple(str(Path(str(package.__file__)).parent) for package in packages)


def key_of_software(config: CompileConfig, pipeline: str) -> str:
    """Return a hash of the software: Python, torch, our packages' sources and the configuration.

    Args:
        config: the configuration, of which everything counts except the cache folder.
        pipeline: hash of the pipeline, which also covers operators and vendor kernels.
    """
    options = {key: value for key, value in config.to_mapping().items() if key != "cache_folder"}
    digest = hashlib.sha256()
    for part in (
        sys.version,
        sys.implementation.cache_tag,
        torch.__version__,
        torch.version.git_version,
        _version_of("torch_npu"),
        device_name(),
        pipeline,
        repr(sorted(options.items())),
    ):
        digest.update(f"{part}\0".encode())
    for folder in own_folders():
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def device_name() -> str:
    """Return the name of this process's accelerator, such as its SoC; empty without one.

    Dynamo treats properties of the device as constants.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return ""
    return f"{accelerator.type} {torch.get_device_module(accelerator).get_device_name()}"


def key_of_settings() -> str:
    """Return a key of Dynamo's settings that is the same in all processes."""
    return "; ".join(
        f"{name}={plain_text(value) or type(value).__qualname__}"
        for name, value in sorted(settings_of_dynamo().items())
    )


def key_of_model(model: Any) -> str:
    """Return a hash of a model's class and of the layout of its weights.

    Raises:
        UncacheableError: A weight has a class or layout that cannot be compared.
    """
    parts = [name_of_class(type(model)), str(getattr(model, "__qualname__", ""))]
    if isinstance(model, nn.Module):
        first: dict[int, str] = {}
        weights = (model.named_parameters, model.named_buffers)
        for name, tensor in chain(*(each(remove_duplicate=False) for each in weights)):
            parts.append(f"{name} as {first.setdefault(id(tensor), name)}: {tensor_layout(tensor)}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def state_of_torch() -> tuple[object, ...]:
    """Return the global state of torch that influences a graph besides the values it reads.

    The last part is only valid in this process, see `key_of_settings`.
    """
    distributed = torch.distributed
    is_distributed = distributed.is_available() and distributed.is_initialized()
    return (
        global_state(),
        torch.is_inference_mode_enabled(),
        num_torch_function_modes(),
        (distributed.get_rank(), distributed.get_world_size()) if is_distributed else None,
        version_of_settings(),
    )


def layout_of_call(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_dims: Mapping[object, tuple[int, ...]]
) -> tuple[object, ...]:
    """Return the layouts of a call's arguments, without the sizes of their dynamic dimensions.

    Raises:
        UncacheableError: An argument has a class or layout that cannot be compared.
    """
    return tuple(
        (
            name,
            tensor_layout(value, dynamic_dims.get(name, ()))
            if isinstance(value, torch.Tensor)
            else name_of_class(type(value)),
        )
        for name, value in (*enumerate(args), *kwargs.items())
    )


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
