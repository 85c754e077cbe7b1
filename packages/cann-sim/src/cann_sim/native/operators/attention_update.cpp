// Joining attention over several parts of the keys into attention over all of them. Computed in float32, rounded once.

#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include <limits>

#include "operator.h"
#include "optional_tensor_list.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

// out = sum of localOut[i] * exp(lse[i] - all), all = log of the sum of exp(lse[i]). +inf, which attention gives a row without
// keys, counts as -inf.
CANN_SIM_OPERATOR(aclnnAttentionUpdate, (OptionalTensorList, lse), (OptionalTensorList, localOut), (Int, updateType),
                  (Tensor, out), (OptionalTensor, lseOut)) {
  if (!lse || lse.size() != localOut.size()) {
    RefuseArgument(localOut.name(), "as many tensors as in 'lse', at least one",
                   std::to_string(lse.size()) + " and " + std::to_string(localOut.size()));
  }
  if (updateType != 0 && updateType != 1) {
    RefuseArgument(updateType.name(), "0 or 1 (with the joint lse)", std::to_string(updateType));
  }
  for (size_t part = 0; part < lse.size(); ++part) {
    RequireDtype(lse[part], {ScalarType::Float});
    RequireRank(lse[part], 1, 1);
    RequireShape(lse[part], lse[0].sizes());
    RequireDtype(localOut[part], kFloats);
    RequireSameDtype(localOut[part], localOut[0]);
    RequireRank(localOut[part], 2, 2);
    RequireShape(localOut[part], {lse[0].size(0), localOut[0].size(1)});
  }
  RequireSameDtype(out, localOut[0]);
  RequireShape(out, localOut[0].sizes());
  const bool wants_lse = updateType == 1 && lseOut;
  if (wants_lse) {
    RequireDtype(*lseOut, {ScalarType::Float});
    RequireShape(*lseOut, lse[0].sizes());
  }
  return [=] {
    std::vector<at::Tensor> logarithms;
    std::vector<at::Tensor> outputs;
    for (size_t part = 0; part < lse.size(); ++part) {
      const at::Tensor own = lse[part];
      logarithms.push_back(own.masked_fill(own.eq(kInfinity), -kInfinity));
      outputs.push_back(localOut[part].Widened());
    }
    const at::Tensor all = at::stack(logarithms).logsumexp({0});
    const at::Tensor weights = at::exp(at::stack(logarithms).sub(all.masked_fill(all.eq(-kInfinity), 0.0)));
    out.Store(at::mul(at::stack(outputs), weights.unsqueeze(-1)).sum({0}));
    if (wants_lse) {
      lseOut->Store(all);
    }
  };
}

}  // namespace cann_sim::operators
