// GELU of one half of a tensor times the other half. Computed in float32, rounded once.

#include <ATen/ops/chunk.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

// approximate: 0 the error function, 1 the tanh form. outGelu is the half that went through GELU.
CANN_SIM_OPERATOR(aclnnGeGluV3, (Tensor, self), (Int, dim), (Int, approximate), (Bool, activateLeft), (Tensor, out),
                  (Tensor, outGelu)) {
  RequireDtype(self, kFloats);
  const int64_t axis = WrapDim(dim, self.rank());
  if (self.rank() == 0 || self.size(static_cast<int>(axis)) % 2 != 0) {
    RefuseArgument(self.name(), "an even size of dimension " + std::to_string(axis), "shape " + Describe(self.sizes()));
  }
  if (approximate != 0 && approximate != 1) {
    RefuseArgument(approximate.name(), "0 (none) or 1 (tanh)", std::to_string(approximate));
  }
  std::vector<int64_t> expected = self.sizes().vec();
  expected[static_cast<size_t>(axis)] /= 2;
  for (const Tensor& result : {out, outGelu}) {
    RequireSameDtype(result, self);
    RequireShape(result, expected);
  }
  const char* form = approximate == 1 ? "tanh" : "none";
  return [=] {
    const std::vector<at::Tensor> halves = at::chunk(self.Widened(), 2, axis);
    const at::Tensor activated = at::gelu(halves[activateLeft ? 0 : 1], form);
    outGelu.Store(activated);
    out.Store(at::mul(activated, halves[activateLeft ? 1 : 0]));
  };
}

}  // namespace cann_sim::operators
