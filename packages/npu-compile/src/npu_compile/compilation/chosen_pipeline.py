"""Selects the pipeline that a configuration names or a caller passes, and applies its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_passes import FingerprintError, PassSelection, Pipeline, PipelineError, default_npu_pipeline
from fx_passes.raising import raising_pipeline
from npu_compile.configuration.config import Fusions
from npu_compile.configuration.config_values import refusal
from npu_compile.errors import ConfigError
from npu_compile.named_function import named_function

if TYPE_CHECKING:
    from npu_compile.configuration.config import CompileConfig


def chosen_pipeline(config: CompileConfig, given: Pipeline | None = None) -> Pipeline | None:
    """Return the pipeline that rewrites graphs, or ``None`` if there is none.

    Raises:
        ConfigError: The configuration contradicts the given pipeline, or names a function that does
            not return one, or a pass or rule that the pipeline does not have.
    """
    if given is not None:
        _check_given(config, given)
    if not config.fuse:
        return None
    pipeline = _named(config) if given is None else given
    selection = PassSelection(
        disabled=config.disabled_fusions,
        exact=config.exact_fusions,
        require=config.required_fusions,
    )
    try:
        return selection.select(pipeline)
    except PipelineError as error:
        known, keys = set(pipeline.names()), ("disabled_fusions", "required_fusions")
        unknown = (key for key in keys if not known.issuperset(getattr(config, key)))
        where = next(unknown, "fusions")
        raise refusal(f"{where}: {error}") from error


def stable_hash(pipeline: Pipeline) -> str:
    """Return the hash of a pipeline for the key of a compile cache.

    Raises:
        ConfigError: A pass of the pipeline has content that cannot be hashed in a stable way.
    """
    try:
        return pipeline.hash()
    except FingerprintError as error:
        raise refusal(
            "cache_folder is given, but what is stored could not be told apart from what another "
            f"pipeline makes: {error}; change the pass, or leave cache_folder out"
        ) from error


def _named(config: CompileConfig) -> Pipeline:
    if config.fusions == Fusions.DEFAULT:
        return default_npu_pipeline(soc=config.soc)
    if config.fusions == Fusions.RAISE:
        return raising_pipeline(soc=config.soc)
    made = named_function(config.fusions, doing="reading the configuration: fusions")()
    if not isinstance(made, Pipeline):
        raise refusal(
            f"fusions {config.fusions!r} returned {type(made).__name__}, expected an "
            "fx_passes.Pipeline"
        )
    return made


def _check_given(config: CompileConfig, given: object) -> None:
    if not isinstance(given, Pipeline):
        raise ConfigError(
            f"compiling with a pipeline: `pipeline` is {given!r}, expected an fx_passes.Pipeline"
        )
    if config.fusions != Fusions.DEFAULT or config.soc:
        key = "soc" if config.fusions == Fusions.DEFAULT else "fusions"
        raise ConfigError(
            f"compiling with a pipeline: the configuration has {key}={getattr(config, key)!r} too, "
            f"which chooses or makes another one; leave {key} out, or do not pass `pipeline`"
        )
