// The gradient of SwiGLU: float32 inside, rounded once.

#include <ATen/ops/cat.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

// x = [a, b] along `dim`; y = a * sigmoid(a) * b.
CANN_SIM_OPERATOR(aclnnSwiGluGrad, (Tensor, yGrad), (Tensor, x), (Int, dim), (Tensor, out)) {
  RequireDtype(x, kFloats);
  RequireSameDtype(yGrad, x);
  RequireSameDtype(out, x);
  RequireShape(out, x.sizes());
  const int64_t along = WrapDim(dim, x.rank());
  std::vector<int64_t> expected = x.sizes().vec();
  if (expected[static_cast<size_t>(along)] % 2 != 0) {
    RefuseArgument(x.name(), "an even size of dimension " + std::to_string(along), Describe(x.sizes()));
  }
  expected[static_cast<size_t>(along)] /= 2;
  RequireShape(yGrad, expected);
  return [=] {
    const std::vector<at::Tensor> halves = at::chunk(x.Widened(), 2, along);
    const at::Tensor gradient = yGrad.Widened();
    const at::Tensor gate = at::sigmoid(halves[0]);
    const at::Tensor slope = halves[0].sub(halves[0].mul(gate)).add_(1.0).mul_(gate);
    out.Store(at::cat({gradient.mul(halves[1]).mul_(slope), gradient.mul(halves[0]).mul_(gate)}, along));
  };
}

}  // namespace cann_sim::operators
