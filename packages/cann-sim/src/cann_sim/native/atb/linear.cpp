// Linear: a matrix product that is added to its output.

#include <ATen/ops/matmul.h>

#include "operations.h"

namespace cann_sim::atb_library {

operators::Plan MakePlan(const atb::infer::LinearParam& parameters, const Arguments& tensors) {
  using operators::RefuseArgument;
  using operators::Tensor;
  if (!parameters.enAccum || parameters.hasBias || parameters.outDataType != ACL_DT_UNDEFINED) {
    RefuseArgument("enAccum", "a product that is added to its output (others are not simulated)", "another linear operation");
  }
  tensors.RequireCounts(3, 1);
  const Tensor x = tensors.Input(0, "x");
  const Tensor weight = tensors.Input(1, "weight");
  const Tensor sum = tensors.Output(0, "C");
  operators::RequireDtype(x, operators::kHalves);
  operators::RequireSameDtype(weight, x);
  operators::RequireRank(x, 2, 2);
  operators::RequireRank(weight, 2, 2);
  operators::RequireDtype(sum, {c10::ScalarType::Float});
  const bool turn_x = parameters.transposeA;
  const bool turn_weight = parameters.transposeB;
  if (x.size(turn_x ? 0 : 1) != weight.size(turn_weight ? 1 : 0)) {
    RefuseArgument(weight.name(), std::to_string(x.size(turn_x ? 0 : 1)) + " values to sum as in 'x'",
                   operators::Describe(weight.sizes()));
  }
  operators::RequireShape(sum, {x.size(turn_x ? 1 : 0), weight.size(turn_weight ? 0 : 1)});
  return [=] {
    const at::Tensor left = turn_x ? x.Widened().t() : x.Widened();
    const at::Tensor right = turn_weight ? weight.Widened().t() : weight.Widened();
    at::Tensor(sum).add_(at::matmul(left, right));
  };
}

}  // namespace cann_sim::atb_library
