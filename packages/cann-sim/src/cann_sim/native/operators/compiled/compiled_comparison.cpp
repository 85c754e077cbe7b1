// Comparisons of the older road, with a tensor or with a number of the host.

#include <ATen/ops/le.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

at::Tensor AtMost(const at::Tensor& values, const at::Tensor& other) { return at::le(values, other); }

}  // namespace

CANN_SIM_COMPILED_OPERATOR(LessEqual) {
  const Tensor x1 = call.Input(0, "x1"), out = call.Output(0, "y");
  RequireDtype(x1, kReals);
  RequireDtype(out, kBool);
  if (call.IsOnHost(1)) {
    const at::Tensor number = call.HostInput(1, "x2");
    return [=] { out.Store(AtMost(x1, number)); };
  }
  const Tensor x2 = call.Input(1, "x2");
  RequireBroadcast(out, {&x1, &x2});
  return [=] { out.Store(AtMost(x1, x2)); };
}

}  // namespace cann_sim::operators
