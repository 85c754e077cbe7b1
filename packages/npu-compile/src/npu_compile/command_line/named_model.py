"""The model of a command: of a function of the user's, or of a configuration of transformers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from npu_compile.configuration.config import CompileConfig, Fusions
from npu_compile.errors import ConfigError, NpuCompileError
from npu_compile.explaining.explanation import Explanation, explain
from npu_compile.named_function import named_function
from npu_graph_runtime import GraphRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable


# What commands tell a person in a line: errors of this package, of the leaves where a value does
# not fit, and of the device. All others are faults, and keep their traceback.
TOLD_ERRORS = (ValueError, NpuCompileError, GraphRuntimeError)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NamedModel:
    """The model that the function of a command returned. ``model`` and ``inputs`` are required.

    Attributes:
        model: as for `compile_model`.
        inputs: example arguments of a decode step by name, tensors ``[rows, ...]`` of one batch.
        config: as for `compile_model`.
        dynamic_arg_dims: as for `compile_model`.
        device: as for `compile_model`; for commands that run the model.
        context: as for `compile_model`.
        pipeline: as for `compile_model`.
        decode: more arguments of `DecodeRunner`: ``inputs`` (by default declared like the example
            inputs), ``recorder``, ``groups``, ``set_lengths``; and ``lengths``, a function of a
            number of padded rows and the number of the step, from 0, that returns the lengths for
            `DecodeRunner.run`. Without ``lengths`` and ``recorder`` the model has no attention with
            host lengths.
        prefill: arguments of `PrefillRunner`, except recorder, lane and groups, which are those of
            ``decode``; and ``lengths``, a function of a number of rows and of sequences that
            returns the argument of its ``set_lengths`` before a capture. Without it no prefill is
            captured.
    """

    model: Callable[..., Any]
    inputs: Mapping[str, Any]
    config: CompileConfig = dataclasses.field(default_factory=CompileConfig)
    dynamic_arg_dims: Mapping[str, tuple[int, ...]] | None = None
    device: Any = None
    context: Any = None
    pipeline: Any = None
    decode: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prefill: Mapping[str, Any] | None = None

    @classmethod
    def load(cls, name: str, config: CompileConfig | None = None) -> NamedModel:
        """Call the function that creates a model.

        Args:
            name: ``module:function``; modules of the current folder are also found. The function
                has no arguments and returns a mapping of the attributes of this class.
            config: replaces the function's configuration.

        Raises:
            ConfigError: The function does not exist, or it returns something else.
        """
        if "" not in sys.path:
            sys.path.insert(0, "")
        made = named_function(name, doing="finding the model")()
        known = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(made, Mapping) or not {"model", "inputs"} <= made.keys() <= {*known}:
            found = sorted(made) if isinstance(made, Mapping) else type(made).__name__
            raise ConfigError(
                f"making the model {name!r}: expected a mapping with model, inputs and, if wished, "
                f"{', '.join(known[2:])}; found {found}"
            )
        given = dict(made) if config is None else {**made, "config": config}
        return cls(**{**given, "config": CompileConfig.of(given.get("config"))})

    def explanation(self) -> Explanation:
        """Explain what is done to the model.

        Raises:
            ConfigError: as for `explain`.
        """
        return explain(
            self.model,
            self.inputs,
            self.config,
            dynamic_arg_dims=self.dynamic_arg_dims,
            pipeline=self.pipeline,
        )

    def with_fusions(self, fusions: str | None) -> NamedModel:
        """Return the model with another pipeline, named as in the configuration.

        Raises:
            ConfigError: No pipeline has this name.
        """
        if fusions is None:
            return self
        config = dataclasses.replace(self.config, fusions=fusions, fuse=True)
        return dataclasses.replace(self, config=config, pipeline=None)


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
