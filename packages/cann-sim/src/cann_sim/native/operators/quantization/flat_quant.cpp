// FlatQuant: rows turned by a Kronecker product of two small matrices, and quantised to int4 with a scale a row.

#include <ATen/ops/div.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "quantization.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kMostRows = 262144;
constexpr int64_t kLargestSide = 256;
constexpr double kLargestInt4 = 7.0;

}  // namespace

// out = kroneckerP1 @ (x @ kroneckerP2) / quantScale, where quantScale makes the largest magnitude of a row 7 / clipRatio, so that
// what is larger than 7 is cut. The first product is rounded to the dtype of x, as the device's matrix unit takes the second one.
CANN_SIM_OPERATOR(aclnnFlatQuant, (Tensor, x), (Tensor, kroneckerP1), (Tensor, kroneckerP2), (Double, clipRatio), (Tensor, out),
                  (Tensor, quantScale)) {
  RequireDtype(x, kHalves);
  RequireRank(x, 3, 3);
  const bool fits = x.size(0) >= 1 && x.size(0) <= kMostRows && x.size(1) >= 1 && x.size(1) <= kLargestSide && x.size(2) >= 8 &&
                    x.size(2) <= kLargestSide && x.size(2) % 8 == 0;
  if (!fits) {
    RefuseArgument(x.name(), "[1 to 262144, 1 to 256, a multiple of 8 up to 256]", Describe(x.sizes()));
  }
  for (const Tensor* factor : {&kroneckerP1, &kroneckerP2}) {
    RequireSameDtype(*factor, x);
  }
  RequireShape(kroneckerP1, {x.size(1), x.size(1)});
  RequireShape(kroneckerP2, {x.size(2), x.size(2)});
  if (clipRatio <= 0.0 || clipRatio > 1.0) {
    RefuseArgument(clipRatio.name(), "a number in (0, 1]", std::to_string(clipRatio));
  }
  RequireDtype(out, {c10::ScalarType::Int});
  RequireQuantized(out, x.sizes());
  RequireDtype(quantScale, {c10::ScalarType::Float});
  RequireShape(quantScale, {x.size(0)});
  return [=] {
    const at::Tensor inner = at::matmul(x.Widened(), kroneckerP2.Widened()).to(x.dtype()).to(at::kFloat);
    const at::Tensor turned = at::matmul(kroneckerP1.Widened(), inner);
    const ScaledRows scaled = ScaleRows(turned.flatten(1), kLargestInt4 / clipRatio);
    StoreQuantized(out, scaled.values.view(turned.sizes()));
    quantScale.Store(scaled.scale);
  };
}

}  // namespace cann_sim::operators
