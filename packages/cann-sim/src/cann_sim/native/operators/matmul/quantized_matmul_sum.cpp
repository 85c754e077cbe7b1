// The sum over a batch of products of int8 matrices with scales. Products are exact, the sum is float32, rounded once.

#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "quantized_grouped_matmul.h"

namespace cann_sim::operators {

using c10::ScalarType;

// out = sum over the batch of (x1 @ x2) * x1Scale * x2Scale; x2 is in the NZ format. `dims` is not looked at, as on the device:
// torch_npu 2.13 passes the freed content of a list.
CANN_SIM_OPERATOR(aclnnQuantMatmulReduceSumWeightNz, (Tensor, x1), (Tensor, x2), (Tensor, x1Scale), (Tensor, x2Scale),
                  (OptionalTensor, yScale), (OptionalTensor, x1Offset), (OptionalTensor, x2Offset), (OptionalTensor, yOffset),
                  (OptionalTensor, bias), (Bool, transposeX1), (Bool, transposeX2), (Int, groupSize), (IntArray, dims),
                  (Bool, keepDims), (Tensor, out)) {
  RequireDtype(x1, {ScalarType::Char});
  RequireRank(x1, 3, 3);
  RequireDtype(x2, {ScalarType::Char});
  RequireShape(x2, {x1.size(0), x1.size(2), x2.size(-1)});
  if (!x2.is_nz()) {
    RefuseArgument(x2.name(), "the FRACTAL_NZ format", "a plain format");
  }
  RequireDtype(x1Scale, {ScalarType::Float});
  RequireShape(x1Scale, {x1.size(0), x1.size(1)});
  RequireDtype(x2Scale, {ScalarType::BFloat16});
  RequireShape(x2Scale, {x2.size(2)});
  for (const OptionalTensor* unused : {&yScale, &x1Offset, &x2Offset, &yOffset, &bias}) {
    if (*unused && (*unused)->numel() != 0) {
      RefuseIfPresent(*unused, "anything but scales of the matrices");
    }
  }
  if (transposeX1 || transposeX2 || keepDims || (groupSize != 0 && groupSize != -1)) {
    RefuseArgument("transposeX1, transposeX2, keepDims and groupSize", "false, false, false and 0 or -1", "others");
  }
  RequireDtype(out, {ScalarType::BFloat16});
  RequireShape(out, {x1.size(1), x2.size(2)});
  return [=] {
    const at::Tensor products = at::matmul(ExactMatrix(x1, false), ExactMatrix(x2, false)).to(at::kFloat);
    const at::Tensor scaled = at::mul(at::mul(products, x1Scale.Widened().unsqueeze(-1)), x2Scale.Widened());
    out.Store(scaled.sum(0));
  };
}

}  // namespace cann_sim::operators
