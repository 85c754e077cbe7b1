"""A small host engine that serves dense Qwen3 models on NPUs and adopts the packages beside it."""

from __future__ import annotations

from qwen3_engine.demonstration.comparison import TokenMismatch, Verdict, compare_with_reference
from qwen3_engine.demonstration.reference import ReferenceModel
from qwen3_engine.errors import (
    BatchError,
    CheckpointError,
    ConfigError,
    EngineError,
    MissingCheckpointFileError,
    OutOfBlocksError,
    RequestError,
)
from qwen3_engine.qwen3.attention import Attend, AttentionOperator, attend_at_once
from qwen3_engine.qwen3.checkpoint import Checkpoint
from qwen3_engine.qwen3.model import Qwen3Model
from qwen3_engine.qwen3.model_config import Qwen3Config
from qwen3_engine.qwen3.model_loader import load_model
from qwen3_engine.serving.engine import Engine, EngineConfig, StepStatistics
from qwen3_engine.serving.model_runner import EagerModelRunner, ModelRunner
from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.scheduler import SchedulerConfig, StepKind
from qwen3_engine.serving.sequence import FinishReason, Request, RequestOutput
from qwen3_engine.serving.step_batch import StepBatch, pad_decode_batch
from qwen3_engine.serving.step_state import StepState
from qwen3_engine.serving.token_runner import SamplingBatch, TokenRunner

__all__ = [
    "Attend",
    "AttentionOperator",
    "BatchError",
    "Checkpoint",
    "CheckpointError",
    "ConfigError",
    "EagerModelRunner",
    "Engine",
    "EngineConfig",
    "EngineError",
    "FinishReason",
    "MissingCheckpointFileError",
    "ModelRunner",
    "OutOfBlocksError",
    "Qwen3Config",
    "Qwen3Model",
    "ReferenceModel",
    "Request",
    "RequestError",
    "RequestOutput",
    "SamplingBatch",
    "SamplingParameters",
    "SchedulerConfig",
    "StepBatch",
    "StepKind",
    "StepState",
    "StepStatistics",
    "TokenMismatch",
    "TokenRunner",
    "Verdict",
    "attend_at_once",
    "compare_with_reference",
    "load_model",
    "pad_decode_batch",
]
