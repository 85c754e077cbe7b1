// Gradients of distances on the older road, which torch_npu takes for powers up to 2 and for the largest difference.

#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

// d(distance) / d(difference), of distances that are not 0; `power` -1 means the largest difference.
at::Tensor DistanceSlope(const at::Tensor& difference, const at::Tensor& distance, double power) {
  const at::Tensor size = difference.abs();
  if (power == 0) {
    return at::zeros_like(difference);
  }
  if (power < 0) {
    return difference.sign().mul(size.ge(distance));
  }
  return difference.sign().mul(size.div(distance).pow(power - 1));
}

}  // namespace

// All four inputs have the shape [..., rows of x1, rows of x2, size]; the sum is over the rows of x2.
CANN_SIM_COMPILED_OPERATOR(CdistGrad) {
  const Tensor grad = call.Input(0, "grad"), x1 = call.Input(1, "x1"), x2 = call.Input(2, "x2");
  const Tensor cdist = call.Input(3, "cdist"), out = call.Output(0, "y");
  RequireDtype(grad, kFloats);
  for (const Tensor& other : {x1, x2, cdist}) {
    RequireSameDtype(other, grad);
    RequireShape(other, grad.sizes());
  }
  const double power = call.Attribute<float>("p", 2);
  return [=] {
    const at::Tensor difference = x1.Widened().sub(x2.Widened()), distance = cdist.Widened();
    const at::Tensor apart = at::where(distance.eq(0), at::ones_like(distance), distance);
    const at::Tensor share = grad.Widened().mul(DistanceSlope(difference, apart, power));
    const at::Tensor counted = distance.eq(0).logical_or(difference.eq(0)).logical_not();
    out.Store(at::where(counted, share, at::zeros_like(share)).sum(-2));
  };
}

}  // namespace cann_sim::operators
