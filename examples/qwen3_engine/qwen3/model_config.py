"""The shape of a dense Qwen3 model, read from the config.json of a Hugging Face checkpoint.

Every key of the file is either read, or rejected if it requires a feature that this
engine lacks, or listed as irrelevant for inference. Any other key is
an error, because silently ignoring a key that changes the mathematics gives wrong tokens.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from qwen3_engine.errors import ConfigError, MissingCheckpointFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_READ_KEYS = frozenset(
    {
        "attention_bias",
        "dtype",
        "eos_token_id",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "quantization_config",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "sliding_window",
        "tie_word_embeddings",
        "torch_dtype",
        "use_sliding_window",
        "vocab_size",
    }
)

# Training, tokeniser and bookkeeping of transformers: without effect on the logits.
_IGNORED_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "chunk_size_feed_forward",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "label2id",
        "max_window_layers",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "transformers_version",
        "use_cache",
    }
)

# The head size that the fused attention operator takes in its ragged layout TND without a separate
# rotary part (documentation of npu_fused_infer_attention_score, constraints of TND).
_HEAD_DIM = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Qwen3Config:
    """The shape of a dense Qwen3 model.

    Attributes:
        vocab_size: rows of the embedding and of the output projection.
        hidden_size: width of the residual stream.
        intermediate_size: width of the gated feed-forward layer.
        num_layers: decoder layers.
        num_heads: query heads.
        num_kv_heads: key/value heads; each serves ``num_heads / num_kv_heads`` query heads.
        head_dim: width of one head; independent of ``hidden_size / num_heads``.
        max_positions: positions for which the rotary embedding was trained.
        rms_norm_eps: epsilon of all RMS norms.
        rope_theta: base of the rotary frequencies.
        tie_word_embeddings: whether the output projection is the embedding.
        checkpoint_dtype: the dtype the weights are stored in, ``None`` if the file does not say.
        eos_token_ids: tokens that end a text.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    checkpoint_dtype: torch.dtype | None
    eos_token_ids: tuple[int, ...]

    @property
    def q_size(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.num_kv_heads * self.head_dim

    @classmethod
    def from_folder(cls, folder: str | Path) -> Qwen3Config:
        """Read ``config.json`` of a checkpoint folder.

        Raises:
            MissingCheckpointFileError: there is no such folder or file.
            ConfigError: the file is not a JSON object, or as for :meth:`from_mapping`.
        """
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise MissingCheckpointFileError(
                f"reading the checkpoint folder {str(folder)!r}: expected a file 'config.json', "
                "found none; give a folder as written by save_pretrained"
            )
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"reading {str(path)!r}: {error}") from error
        except ValueError as error:
            raise ConfigError(f"reading {str(path)!r}: not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(
                f"reading {str(path)!r}: expected a JSON object, found {type(values).__name__}"
            )
        try:
            return cls.from_mapping(values)
        except ConfigError as error:
            raise ConfigError(f"{error} (in {str(path)!r})") from error

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Qwen3Config:
        """Make a config from the keys and values of a config.json.

        Raises:
            ConfigError: an unknown key (the message names the nearest known one), a missing key, a
                value of the wrong type or range, or a feature that the engine does not have.
        """
        _refuse_unknown_keys(values)
        _refuse_features(values)
        num_heads = _positive_int(values, "num_attention_heads")
        num_kv_heads = num_heads
        if values.get("num_key_value_heads") is not None:
            num_kv_heads = _positive_int(values, "num_key_value_heads")
        if num_heads % num_kv_heads:
            raise ConfigError(
                f"reading the model config: num_attention_heads ({num_heads}) must be a multiple "
                f"of num_key_value_heads ({num_kv_heads})"
            )
        head_dim = _positive_int(values, "head_dim")
        if head_dim != _HEAD_DIM:
            raise ConfigError(
                f"reading the model config: head_dim is {head_dim}, and the fused attention "
                f"operator takes {_HEAD_DIM} in its layout TND"
            )
        return cls(
            vocab_size=_positive_int(values, "vocab_size"),
            hidden_size=_positive_int(values, "hidden_size"),
            intermediate_size=_positive_int(values, "intermediate_size"),
            num_layers=_positive_int(values, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            max_positions=_positive_int(values, "max_position_embeddings"),
            rms_norm_eps=_positive_float("rms_norm_eps", _required(values, "rms_norm_eps")),
            rope_theta=_rope_theta(values),
            tie_word_embeddings=_bool(values, "tie_word_embeddings"),
            checkpoint_dtype=_dtype(values),
            eos_token_ids=_token_ids(values),
        )


def _refuse_unknown_keys(values: Mapping[str, Any]) -> None:
    known = _READ_KEYS | _IGNORED_KEYS
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "no known key is near"
            raise ConfigError(
                f"reading the model config: unknown key {key!r}; {hint} A key that this engine "
                "does not know may change the mathematics, so it is not skipped"
            )


def _refuse_features(values: Mapping[str, Any]) -> None:
    is_set: Callable[[Any], bool] = bool
    refused: dict[str, tuple[Callable[[Any], bool], str]] = {
        "model_type": (lambda value: value != "qwen3", "only dense 'qwen3' models are served"),
        "hidden_act": (lambda value: value != "silu", "only 'silu' is served"),
        "attention_bias": (is_set, "projections with a bias are not served"),
        "use_sliding_window": (is_set, "sliding-window attention is not served"),
        "rope_scaling": (is_set, "rotary scaling is not served"),
        "quantization_config": (is_set, "quantised weights are not served"),
    }
    for key, (wants, reason) in refused.items():
        value = values.get(key)
        if value is not None and wants(value):
            raise ConfigError(f"reading the model config: {key} is {value!r}; {reason}")
    if "model_type" not in values:
        raise ConfigError("reading the model config: expected the key 'model_type', found none")
    # transformers keeps a window size in the file even when use_sliding_window is false.
    for layer_type in values.get("layer_types") or ():
        if layer_type != "full_attention":
            raise ConfigError(
                f"reading the model config: layer_types holds {layer_type!r}; only "
                "'full_attention' is served"
            )


def _rope_theta(values: Mapping[str, Any]) -> float:
    """Read the rotary base from ``rope_parameters`` (transformers 5) or ``rope_theta`` (4)."""
    parameters = values.get("rope_parameters")
    if parameters is None:
        return _positive_float("rope_theta", _required(values, "rope_theta"))
    if not isinstance(parameters, dict):
        raise ConfigError(
            f"reading the model config: rope_parameters must be an object, found {parameters!r}"
        )
    rope_type = parameters.get("rope_type", "default")
    if rope_type != "default":
        raise ConfigError(
            f"reading the model config: rope_parameters has rope_type {rope_type!r}; only "
            "'default' is served, rotary scaling is not"
        )
    unknown = sorted(parameters.keys() - {"rope_type", "rope_theta"})
    if unknown:
        raise ConfigError(
            f"reading the model config: unknown keys {unknown} in rope_parameters; expected "
            "'rope_type' and 'rope_theta'"
        )
    theta = _positive_float(
        "rope_parameters.rope_theta",
        parameters.get("rope_theta", values.get("rope_theta")),
    )
    if values.get("rope_theta") not in {None, theta}:
        raise ConfigError(
            f"reading the model config: rope_theta is {values['rope_theta']!r} and "
            f"rope_parameters.rope_theta is {theta!r}; remove one"
        )
    return theta


def _required(values: Mapping[str, Any], key: str) -> object:
    if key not in values:
        raise ConfigError(f"reading the model config: expected the key {key!r}, found none")
    return values[key]


def _positive_int(values: Mapping[str, Any], key: str) -> int:
    value = _required(values, key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(
            f"reading the model config: {key} must be whole and at least 1, found {value!r}"
        )
    return value


def _positive_float(key: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise ConfigError(f"reading the model config: {key} must be above 0, found {value!r}")
    return float(value)


def _bool(values: Mapping[str, Any], key: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"reading the model config: {key} must be true or false, found {value!r}")
    return value


def _dtype(values: Mapping[str, Any]) -> torch.dtype | None:
    """Read ``dtype`` (transformers 5) or ``torch_dtype`` (4)."""
    name = values.get("dtype", values.get("torch_dtype"))
    if name is None:
        return None
    known = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    if name not in known:
        raise ConfigError(
            f"reading the model config: dtype is {name!r}, expected one of {', '.join(known)}"
        )
    return known[name]


def _token_ids(values: Mapping[str, Any]) -> tuple[int, ...]:
    value = values.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ConfigError(
            f"reading the model config: eos_token_id must be a number or a list, found {value!r}"
        )
    return tuple(ids)
