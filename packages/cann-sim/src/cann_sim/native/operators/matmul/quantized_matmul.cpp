// Products of int8 and int4 matrices, with the scales on the way out. The integer sum is exact.

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "quantized_grouped_matmul.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// A scale for the matrix unit: the upper 19 bits of a float32, and an offset of 9 bits from bit 37, in one int64.
constexpr int64_t kScaleBits = 0xFFFFE000;
constexpr int64_t kHalfOfLastScaleBit = 0x1000;
constexpr int64_t kMark = int64_t{1} << 46;
constexpr int kOffsetPosition = 37;


at::Tensor PackedScale(const at::Tensor& scale, bool round) {
  const at::Tensor bits = scale.contiguous().view(at::kInt).to(at::kLong);
  const at::Tensor rounded = round ? at::add(bits, kHalfOfLastScaleBit) : bits;
  return at::bitwise_or(at::bitwise_and(rounded, kScaleBits), kMark);
}

at::Tensor PackedOffset(const at::Tensor& offset) {
  return at::round(offset).clamp(-256, 255).to(at::kLong).bitwise_and(0x1FF).bitwise_left_shift(kOffsetPosition);
}

at::Tensor UnpackedOffset(const at::Tensor& packed) {
  const at::Tensor bits = at::bitwise_right_shift(packed, kOffsetPosition).bitwise_and(0x1FF);
  return bits.add(256).bitwise_and(0x1FF).sub(256).to(at::kFloat);
}

bool IsTransposed(const Tensor& matrix) {
  return matrix.strides()[static_cast<size_t>(matrix.rank()) - 2] == 1;
}

void RequireMatrices(const Tensor& tensor) {
  RequireDtype(tensor, {ScalarType::Char, ScalarType::Int});
  RequireRank(tensor, 2, tensor.dtype() == ScalarType::Int ? 2 : 6);
  if (!tensor.is_contiguous() && !IsTransposed(tensor)) {
    RefuseArgument(tensor.name(), "a contiguous tensor or one with its last two dimensions transposed",
                   "strides " + Describe(tensor.strides()));
  }
}

void RequireOneOr(const Tensor& tensor, int64_t size) {
  if (tensor.rank() != 1 || (tensor.size(0) != 1 && tensor.size(0) != size)) {
    RefuseArgument(tensor.name(), "shape [1] or [" + std::to_string(size) + "]", Describe(tensor.sizes()));
  }
}

// What a result in floating point goes through before it is rounded; empty for nothing.
using Activation = std::function<at::Tensor(const at::Tensor&)>;

// Present with elements; torch_npu passes an empty tensor for some that are absent.
bool IsGiven(const OptionalTensor& tensor) { return tensor && tensor->numel() != 0; }

// The combinations of dtypes of A2 and A3 (CANN documents of aclnnQuantMatmulV5).
void RequireCombination(ScalarType out, const OptionalTensor& x1_scale, const Tensor& x2_scale,
                        const OptionalTensor& bias) {
  const DtypeSet packed{ScalarType::Long, ScalarType::UInt64};
  const DtypeSet plain{ScalarType::Float, ScalarType::BFloat16};
  DtypeSet scales = plain;
  DtypeSet biases{ScalarType::Int};
  switch (out) {
    case ScalarType::Half:
      scales = x1_scale ? DtypeSet{ScalarType::Float} : packed;
      biases = x1_scale ? DtypeSet{ScalarType::Int, ScalarType::Half, ScalarType::Float} : biases;
      break;
    case ScalarType::BFloat16:
      biases = DtypeSet{ScalarType::Int, ScalarType::BFloat16, ScalarType::Float};
      break;
    case ScalarType::Char:
      scales = packed;
      break;
    default:
      break;
  }
  RequireDtype(x2_scale, scales);
  if (bias) {
    RequireDtype(*bias, biases);
  }
  if (x1_scale) {
    RequireDtype(*x1_scale, {ScalarType::Float});
    if (out == ScalarType::Char || out == ScalarType::Int) {
      RefuseArgument(x1_scale.name(), "none where the result is an integer", "a tensor");
    }
  }
}

Plan TransQuantParam(const Tensor& scale, const OptionalTensor& offset, int64_t roundMode, const Tensor& out) {
  RequireDtype(scale, {ScalarType::Float});
  RequireRank(scale, 1, 2);
  RequireDtype(out, {ScalarType::Long, ScalarType::UInt64});
  if (roundMode != 0 && roundMode != 1) {
    RefuseArgument("roundMode", "0 (cut off) or 1 (round)", std::to_string(roundMode));
  }
  if (offset) {
    RequireDtype(*offset, {ScalarType::Float});
    RequireRank(*offset, scale.rank(), scale.rank());
    RequireBroadcast(out, {&scale, &*offset});
  } else {
    RequireShape(out, scale.sizes());
  }
  return [=] {
    const at::Tensor packed = PackedScale(scale, roundMode == 1);
    out.Store(offset ? at::bitwise_or(packed, PackedOffset(offset)) : packed);
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnTransQuantParamV2, (Tensor, scale), (OptionalTensor, offset), (Tensor, out)) {
  return TransQuantParam(scale, offset, 0, out);
}

CANN_SIM_OPERATOR(aclnnTransQuantParamV3, (Tensor, scale), (OptionalTensor, offset), (Int, roundMode), (Tensor, out)) {
  return TransQuantParam(scale, offset, roundMode, out);
}

namespace {

// out = (x1 @ x2 + bias) * x2Scale * x1Scale, a floating point bias is added last; a packed x2Scale may hold the offset that is
// added to an int8 result. An int32 result is not scaled. Matrices are int8, or int4 eight in an int32.
Plan QuantMatmul(const Tensor& x1, const Tensor& x2, const OptionalTensor& x1Scale, const Tensor& x2Scale,
                 const OptionalTensor& yScale, const OptionalTensor& x1Offset, const OptionalTensor& x2Offset,
                 const OptionalTensor& yOffset, const OptionalTensor& bias, const Bool& transposeX1, const Bool& transposeX2,
                 const Int& groupSize, const Tensor& out, const Activation& activation = {}) {
  RequireMatrices(x1);
  RequireMatrices(x2);
  RequireDtype(out, {ScalarType::Half, ScalarType::BFloat16, ScalarType::Char, ScalarType::Int});
  RefuseIfPresent(yScale, "a scale of the result");
  for (const OptionalTensor& unused : {x1Offset, yOffset}) {
    if (IsGiven(unused)) {
      RefuseIfPresent(unused, "an offset of the left matrix or of the result");
    }
  }
  if (groupSize != 0) {
    RefuseArgument(groupSize.name(), "0 (scales of groups are not simulated)", std::to_string(groupSize));
  }
  if (transposeX1 || transposeX2) {
    RefuseArgument("transposeX1", "false, as torch_npu passes transposed views", "true");
  }
  RequireCombination(out.dtype(), x1Scale, x2Scale, bias);
  const bool four_bits = x1.dtype() == ScalarType::Int;
  if (x1.dtype() != x2.dtype()) {
    RefuseArgument(x2.name(), "int4 in int32 beside the same, int8 beside int8 (an int4 matrix beside int8 is not simulated)",
                   "another");
  }
  if (four_bits && (out.dtype() == ScalarType::Char || out.dtype() == ScalarType::Int)) {
    RefuseArgument(out.name(), "float16 or bfloat16 beside int4 matrices", "an integer dtype");
  }
  if (four_bits) {
    RequireContiguous(x1);
  }
  const bool x2_transposed = !x2.is_contiguous();
  const int64_t rows = x1.size(-2);
  const int64_t columns = x2.size(-1) * (four_bits && !x2_transposed ? kInt4PerInt32 : 1);
  const int64_t inner = x2.size(-2) * (four_bits && x2_transposed ? kInt4PerInt32 : 1);
  if (x1.size(-1) * (four_bits ? kInt4PerInt32 : 1) != inner) {
    RefuseArgument(x2.name(), std::to_string(x1.size(-1)) + " rows, the width of 'x1'", Describe(x2.sizes()));
  }
  RequireOneOr(x2Scale, columns);
  if (x1Scale) {
    RequireShape(*x1Scale, {rows});
  }
  if (x2Offset) {
    RequireDtype(*x2Offset, {ScalarType::Float});
    if (out.dtype() != ScalarType::Char) {
      RefuseArgument(x2Offset.name(), "none where the result is not int8", "a tensor");
    }
    RequireOneOr(*x2Offset, columns);
  }
  if (bias && bias->rank() == 3) {
    RequireShape(*bias, {out.size(0), 1, columns});
  } else if (bias) {
    RequireShape(*bias, {columns});
  }
  if (out.size(-2) != rows || out.size(-1) != columns) {
    RefuseArgument(out.name(), "last dimensions [" + std::to_string(rows) + ", " + std::to_string(columns) + "]",
                   Describe(out.sizes()));
  }
  return [=] {
    // float64 holds every sum of int8 products exactly.
    at::Tensor sum = at::matmul(ExactMatrix(x1, false), ExactMatrix(x2, x2_transposed));
    const bool bias_first = bias && bias->dtype() == ScalarType::Int;
    if (bias_first) {
      sum = at::add(sum, at::Tensor(bias));
    }
    if (out.dtype() == ScalarType::Int) {
      out.Store(sum);
      return;
    }
    const bool packed = x2Scale.dtype() == ScalarType::Long || x2Scale.dtype() == ScalarType::UInt64;
    const at::Tensor bits = packed ? at::Tensor(x2Scale).view(at::kLong) : at::Tensor();
    at::Tensor values = at::mul(sum.to(at::kFloat), WidenScale(x2Scale));
    if (x1Scale) {
      values = at::mul(values, x1Scale->Widened().unsqueeze(-1));
    }
    if (bias && !bias_first) {
      values = at::add(values, bias->Widened());
    }
    if (out.dtype() == ScalarType::Char) {
      StoreRounded(out, at::add(values, x2Offset ? x2Offset->Widened() : UnpackedOffset(bits)));
    } else {
      out.Store(activation ? activation(values) : values);
    }
  };
}

// The GELU of this name.
Activation GeluOf(const Text& name) {
  if (name.value() != "gelu_erf" && name.value() != "gelu_tanh") {
    RefuseArgument(name.name(), "gelu_erf or gelu_tanh", name.value());
  }
  const std::string form = name.value() == "gelu_erf" ? "none" : "tanh";
  return [form](const at::Tensor& values) { return at::gelu(values, form); };
}

Plan QuantMatmulGelu(const Tensor& x1, const Tensor& x2, const OptionalTensor& x1Scale, const Tensor& x2Scale,
                     const std::array<OptionalTensor, 4>& unused, const OptionalTensor& bias, const OptionalTensor& x3,
                     const Text& fusedOpType, const Int& groupSize, const Tensor& out) {
  RequireDtype(out, kHalves);
  if (!x1Scale) {
    RefuseArgument(x1Scale.name(), "a scale for each row", "none");
  }
  for (const OptionalTensor& tensor : {unused[0], unused[1], unused[2], unused[3], x3}) {
    if (IsGiven(tensor)) {
      RefuseIfPresent(tensor, "anything but scales of the matrices and a bias");
    }
  }
  const Bool plain(false, "transpose");
  const OptionalTensor none;
  return QuantMatmul(x1, x2, x1Scale, x2Scale, none, none, none, none, IsGiven(bias) ? bias : none, plain, plain, groupSize,
                     out, GeluOf(fusedOpType));
}

}  // namespace

#define CANN_SIM_QUANT_MATMUL                                                                                         \
  (Tensor, x1), (Tensor, x2), (OptionalTensor, x1Scale), (Tensor, x2Scale), (OptionalTensor, yScale),                 \
      (OptionalTensor, x1Offset), (OptionalTensor, x2Offset), (OptionalTensor, yOffset), (OptionalTensor, bias),      \
      (Bool, transposeX1), (Bool, transposeX2), (Int, groupSize), (Tensor, out)

CANN_SIM_OPERATOR(aclnnQuantMatmulV5, CANN_SIM_QUANT_MATMUL) {
  return QuantMatmul(x1, x2, x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias, transposeX1, transposeX2,
                     groupSize, out);
}

// x2 is in the NZ format, which reads as the plain one.
CANN_SIM_OPERATOR(aclnnQuantMatmulWeightNz, CANN_SIM_QUANT_MATMUL) {
  return QuantMatmul(x1, x2, x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias, transposeX1, transposeX2,
                     groupSize, out);
}

#define CANN_SIM_QUANT_MATMUL_GELU                                                                                    \
  (Tensor, x1), (Tensor, x2), (OptionalTensor, x1Scale), (Tensor, x2Scale), (OptionalTensor, yScale),                 \
      (OptionalTensor, x1Offset), (OptionalTensor, x2Offset), (OptionalTensor, yOffset), (OptionalTensor, bias),      \
      (OptionalTensor, x3), (Text, fusedOpType), (Int, groupSize), (Tensor, out)

CANN_SIM_OPERATOR(aclnnFusedQuantMatmul, CANN_SIM_QUANT_MATMUL_GELU) {
  return QuantMatmulGelu(x1, x2, x1Scale, x2Scale, {yScale, x1Offset, x2Offset, yOffset}, bias, x3, fusedOpType, groupSize, out);
}

CANN_SIM_OPERATOR(aclnnFusedQuantMatmulWeightNz, CANN_SIM_QUANT_MATMUL_GELU) {
  return QuantMatmulGelu(x1, x2, x1Scale, x2Scale, {yScale, x1Offset, x2Offset, yOffset}, bias, x3, fusedOpType, groupSize, out);
}

}  // namespace cann_sim::operators
