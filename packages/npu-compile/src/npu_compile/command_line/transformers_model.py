"""Creates a transformers model from its configuration alone, without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from npu_compile.command_line.named_model import NamedModel
from npu_compile.configuration.config import CompileConfig, Fusions
from npu_compile.errors import ConfigError

# A batch whose sizes are above 1, which Dynamo would take for constants.
_SHAPE = (2, 16)


def transformers_model(folder: str, config: CompileConfig | None = None) -> NamedModel:
    """Create a transformers decoder on ``meta``, to be explained.

    Args:
        folder: a folder with the model's ``config.json``, or that file. Nothing is downloaded.
        config: how to compile it; by default only with raising.

    Raises:
        ConfigError: There is no configuration, transformers is not installed, or it has no
            decoder for it.
    """
    path = Path(folder)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(
            f"reading the model {folder!r}: expected a folder with a config.json, found no file "
            f"{str(file)!r}; give the folder of a model that is on this machine"
        )
    try:
        from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - not required
    except ImportError as error:
        raise ConfigError(
            f"reading the model {folder!r}: {error}; install it with `pip install transformers`"
        ) from error
    try:
        given: Any = AutoConfig.from_pretrained(str(file), local_files_only=True)
        given = given.get_text_config(decoder=True)
        given.use_cache = False
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                given, dtype=given.dtype or torch.bfloat16
            )
            tokens = torch.zeros(_SHAPE, dtype=torch.int64)
    except (ValueError, OSError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"reading the model {folder!r}: transformers makes no decoder of it: {reason}; explain "
            "it by MODULE:FUNCTION instead"
        ) from error
    return NamedModel(
        model=model.eval(),
        inputs={"input_ids": tokens},
        config=CompileConfig(fusions=Fusions.RAISE.value) if config is None else config,
    )
