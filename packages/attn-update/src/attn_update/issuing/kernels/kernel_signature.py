"""The CANN kernels of fused attention, and how the operator's arguments map to their parameters.

In a task update, torch_npu (op-plugin) implements `npu_fused_infer_attention_score.out` and its v2
by two C calls, on the Ascend 910 family from CANN 8.1.RC1 on: the first phase of
aclnnFusedInferAttentionScoreV3 or V4 checks and prepares, the second launches. Their parameters are
public (the aclnn pages of CANN's documents). The mapping of arguments is read from op-plugin of
torch_npu 2.13. The schemas of both operators are the same in torch_npu 2.10 to 2.14, and all of
them contain the names of both kernels. A device rejects an update by another kernel than was
captured, so a wrong choice here is an error in the first update and never a wrong number.

Both updaters use these tables: `attn_update.issuing.kernels.kernel_updater` reads them, and
`attn_update.issuing.native.native_build` writes them as C++ for `native/kernel_call.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ParameterType(Enum):
    """Type of a parameter of a kernel's first phase; values name `native/kernel_call.h` types."""

    TENSOR = "T"
    TENSOR_LIST = "L"
    """A list that holds one tensor."""
    INTEGERS = "A"
    INTEGER = "I"
    FLOAT = "D"
    BOOLEAN = "B"
    TEXT = "S"
    FIRST_OUTPUT = "O0"
    """The first tensor of a list of tensors."""
    SECOND_OUTPUT = "O1"


@dataclass(frozen=True, kw_only=True)
class KernelParameter:
    """One parameter of a first phase.

    Attributes:
        type: Its type.
        argument: The operator's argument; empty if there is none, and nothing is passed.
    """

    type: ParameterType
    argument: str

    def misfit(self, value: object) -> ValueError:
        """Return the error for a value that is none of its type."""
        takes = self.type.name.lower().replace("_", " ")
        return ValueError(f"argument {self.argument!r} takes {takes}, found {type(value)}")


@dataclass(frozen=True, kw_only=True)
class KernelSignature:
    """A kernel with two phases.

    Attributes:
        kernel: The C function of the second phase; the first has ``GetWorkspaceSize`` appended.
        operator: The torch operator that launches it, without the overload, which is ``out``.
        parameters: Parameters of the first phase, in order, without its two output parameters.
    """

    kernel: str
    operator: str
    parameters: tuple[KernelParameter, ...]

    def position_of(self, argument: str) -> int:
        """Return the position of the parameter for an argument of the operator.

        Raises:
            ValueError: There is none.
        """
        for position, parameter in enumerate(self.parameters):
            if parameter.argument == argument:
                return position
        raise ValueError(f"no argument '{argument}' of {self.operator} reaches {self.kernel}")


def _read_parameters(text: str) -> tuple[KernelParameter, ...]:
    pairs = (word.split(":") for word in text.split())
    return tuple(
        KernelParameter(type=ParameterType(letter), argument=argument) for letter, argument in pairs
    )


FUSED_INFER_ATTENTION_V3 = KernelSignature(
    kernel="aclnnFusedInferAttentionScoreV3",
    operator="npu::npu_fused_infer_attention_score",
    parameters=_read_parameters(
        """
        T:query L:key L:value T:pse_shift T:atten_mask
        A:actual_seq_lengths A:actual_seq_lengths_kv
        T:dequant_scale1 T:quant_scale1 T:dequant_scale2 T:quant_scale2 T:quant_offset2
        T:antiquant_scale T:antiquant_offset T:block_table T:query_padding_size T:kv_padding_size
        T:key_antiquant_scale T:key_antiquant_offset T:value_antiquant_scale
        T:value_antiquant_offset T:key_shared_prefix T:value_shared_prefix
        A:actual_shared_prefix_len T:query_rope T:key_rope T:key_rope_antiquant_scale
        I:num_heads D:scale I:pre_tokens I:next_tokens S:input_layout I:num_key_value_heads
        I:sparse_mode I:inner_precise I:block_size I:antiquant_mode B:softmax_lse_flag
        I:key_antiquant_mode I:value_antiquant_mode O0:out O1:out
        """
    ),
)

FUSED_INFER_ATTENTION_V4 = KernelSignature(
    kernel="aclnnFusedInferAttentionScoreV4",
    operator="npu::npu_fused_infer_attention_score_v2",
    parameters=_read_parameters(
        """
        T:query L:key L:value T:pse_shift T:atten_mask A:actual_seq_qlen A:actual_seq_kvlen
        T: T: T: T:quant_scale_out T:quant_offset_out T: T: T:block_table T: T:
        T:dequant_scale_key T:dequant_offset_key T:dequant_scale_value T:dequant_offset_value
        T: T: A: T:query_rope T:key_rope T:dequant_scale_key_rope T:dequant_scale_query
        T:learnable_sink I:num_query_heads D:softmax_scale I:pre_tokens I:next_tokens
        S:input_layout I:num_key_value_heads I:sparse_mode I:inner_precise I:block_size I:
        B:return_softmax_lse I:key_quant_mode I:value_quant_mode I:query_quant_mode O0:out O1:out
        """
    ),
)

KERNEL_SIGNATURES: Mapping[str, KernelSignature] = MappingProxyType(
    {
        f"{signature.operator}.out": signature
        for signature in (FUSED_INFER_ATTENTION_V3, FUSED_INFER_ATTENTION_V4)
    }
)
"""By operator with its overload."""


def kernel_functions() -> tuple[str, ...]:
    """Return the names of both phases of all kernels."""
    names = [signature.kernel for signature in KERNEL_SIGNATURES.values()]
    return tuple(f"{name}{phase}" for name in names for phase in ("GetWorkspaceSize", ""))


def render_signatures() -> str:
    """Return the tables as a C++ header, all of them in the constant ``kKernelSignatures``."""
    constants = "\n".join(map(_render, KERNEL_SIGNATURES.values()))
    names = ", ".join(f"k{signature.kernel}" for signature in KERNEL_SIGNATURES.values())
    return f"""\
// Written by attn_update.issuing.kernels.kernel_signature, which names the sources.
#pragma once

#include <tuple>

#include "kernel_call.h"

namespace attn_update {{

{constants}
inline constexpr auto kKernelSignatures = std::make_tuple({names});

}}  // namespace attn_update
"""


def _render(signature: KernelSignature) -> str:
    types = ", ".join(parameter.type.value for parameter in signature.parameters)
    arguments = ", ".join(f'"{parameter.argument}"' for parameter in signature.parameters)
    names = f'"{signature.kernel}", "{signature.operator}"'
    return (
        f"inline constexpr KernelSignature<{types}>\n"
        f"    k{signature.kernel}{{{names}, {{{arguments}}}}};\n"
    )
