// GELU of one half of a tensor times the other half. Computed in float32, rounded once.

#include <ATen/ops/chunk.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>

#include "operator.h"

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

// The first half of the last dimension through GELU, times the second half.
CANN_SIM_OPERATOR(aclnnGeluMul, (Tensor, input), (Text, approximate), (Tensor, out)) {
  RequireDtype(input, kFloats);
  RequireSameDtype(out, input);
  RequireRank(input, 1, kMaxRank);
  if (input.size(-1) % 2 != 0) {
    RefuseArgument(input.name(), "an even size of the last dimension", "shape " + Describe(input.sizes()));
  }
  if (approximate.value() != "none" && approximate.value() != "tanh") {
    RefuseArgument(approximate.name(), "'none' or 'tanh'", "'" + approximate.value() + "'");
  }
  std::vector<int64_t> expected = input.sizes().vec();
  expected.back() /= 2;
  RequireShape(out, expected);
  return [=] {
    const std::vector<at::Tensor> halves = at::chunk(input.Widened(), 2, -1);
    out.Store(at::mul(at::gelu(halves[0], approximate.value()), halves[1]));
  };
}

}  // namespace cann_sim::operators
