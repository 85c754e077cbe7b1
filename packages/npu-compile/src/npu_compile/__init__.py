"""Compile a model for graph execution on NPUs.

Combines fusion, splitting, capture, replay and attention update from four independent packages.
"""

from npu_compile.__about__ import __version__
from npu_compile.compilation.backend import Backend
from npu_compile.compilation.compiled_model import CompiledModel, compile_model
from npu_compile.compilation.graph_compiler import CompilationReport
from npu_compile.configuration.config import (
    CaptureFailure,
    CompileConfig,
    CompileMode,
    Fusions,
    InnerCompiler,
)
from npu_compile.errors import CompileCacheWarning, ConfigError, InputError, NpuCompileError
from npu_compile.explaining.explanation import Explanation, explain
from npu_compile.inputs.input_spec import InputPlace, InputSpec, StepSize
from npu_compile.inputs.sequence_packing import pack_sequences
from npu_compile.inputs.static_inputs import StaticInputs
from npu_compile.runners.captured_steps import CapturedSteps
from npu_compile.runners.decode_runner import DecodeRunner
from npu_compile.runners.prefill_runner import PrefillRunner
from npu_compile.runners.runner_statistics import RunnerStatistics, SizeUse
from npu_compile.runners.several_steps.draft_lengths import draft_lengths
from npu_compile.runners.several_steps.repeated_steps import Advance
from npu_compile.runners.several_steps.token_sampler import TokenSampler
from npu_compile.runners.step_producers import StepProducers
from npu_compile.runners.step_runner import DecodeObserver, DecodeStep

__all__ = [
    "Advance",
    "Backend",
    "CaptureFailure",
    "CapturedSteps",
    "CompilationReport",
    "CompileCacheWarning",
    "CompileConfig",
    "CompileMode",
    "CompiledModel",
    "ConfigError",
    "DecodeObserver",
    "DecodeRunner",
    "DecodeStep",
    "Explanation",
    "Fusions",
    "InnerCompiler",
    "InputError",
    "InputPlace",
    "InputSpec",
    "NpuCompileError",
    "PrefillRunner",
    "RunnerStatistics",
    "SizeUse",
    "StaticInputs",
    "StepProducers",
    "StepSize",
    "TokenSampler",
    "__version__",
    "compile_model",
    "draft_lengths",
    "explain",
    "pack_sequences",
]
