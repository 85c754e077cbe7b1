// From integers back to floating point.

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "quantization.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

}  // namespace

// y = (x + offset) * scale, rounded once; int32 holds eight int4.
CANN_SIM_OPERATOR(aclnnAscendAntiQuant, (Tensor, x), (Tensor, scale), (OptionalTensor, offset), (DataType, dstType),
                  (Bool, sqrtMode), (Tensor, y)) {
  RequireDtype(x, {ScalarType::Char, ScalarType::Int});
  RequireRank(x, 1, kMaxRank);
  std::vector<int64_t> expected = x.sizes().vec();
  const bool packed = x.dtype() == ScalarType::Int;
  if (packed) {
    expected.back() *= kInt4PerInt32;
  }
  RequireDtype(y, kHalves);
  RequireShape(y, expected);
  RequireDtype(scale, {ScalarType::Float, ScalarType::BFloat16});
  RequireRank(scale, 1, 1);
  if (scale.size(0) != 1 && scale.size(0) != expected.back()) {
    RefuseArgument(scale.name(), "shape [1] or [" + std::to_string(expected.back()) + "]", Describe(scale.sizes()));
  }
  if (offset) {
    RequireSameDtype(*offset, scale);
    RequireShape(*offset, scale.sizes());
  }
  return [=] {
    at::Tensor values = packed ? UnpackInt4(x) : x.Widened();
    if (offset) {
      values = at::add(values, offset->Widened());
    }
    values = at::mul(values, scale.Widened());
    y.Store(sqrtMode ? at::mul(values, scale.Widened()) : values);
  };
}

// y = x * weightScale * activationScale + bias; an int32 bias is added to x.
CANN_SIM_OPERATOR(aclnnDequantBias, (Tensor, x), (Tensor, weightScale), (OptionalTensor, activationScale),
                  (OptionalTensor, bias), (Int, outputDtype), (Tensor, out)) {
  RequireDtype(x, {ScalarType::Int});
  RequireRank(x, 2, 2);
  RequireContiguous(x);
  const bool bfloat16 = out.dtype() == ScalarType::BFloat16;
  RequireDtype(out, kHalves);
  RequireShape(out, x.sizes());
  RequireDtype(weightScale, {bfloat16 ? ScalarType::BFloat16 : ScalarType::Float});
  RequireShape(weightScale, {x.size(1)});
  if (activationScale) {
    RequireDtype(*activationScale, {ScalarType::Float});
    RequireShape(*activationScale, {x.size(0)});
  }
  if (bias) {
    RequireDtype(*bias, kFloats | DtypeSet{ScalarType::Int});
    RequireShape(*bias, {x.size(1)});
  }
  return [=] {
    const bool bias_first = bias && bias->dtype() == ScalarType::Int;
    const at::Tensor total = bias_first ? at::add(at::Tensor(x), at::Tensor(bias)) : at::Tensor(x);
    at::Tensor values = at::mul(total.to(at::kFloat), weightScale.Widened());
    if (activationScale) {
      values = at::mul(values, activationScale->Widened().unsqueeze(1));
    }
    out.Store(bias && !bias_first ? at::add(values, bias->Widened()) : values);
  };
}

}  // namespace cann_sim::operators
