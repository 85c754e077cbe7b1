// Comparisons of the older road, with a tensor or with a number of the host.

#include <ATen/ops/eq.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/le.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/ne.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

using Comparison = at::Tensor(const at::Tensor&, const at::Tensor&);

Plan PlanComparison(const CompiledArguments& call, Comparison* compare) {
  const Tensor x1 = call.Input(0, "x1"), out = call.Output(0, "y");
  RequireDtype(x1, kReals);
  RequireDtype(out, kBool);
  if (call.IsOnHost(1)) {
    const at::Tensor number = call.HostInput(1, "x2");
    return [=] { out.Store(compare(x1, number)); };
  }
  const Tensor x2 = call.Input(1, "x2");
  RequireBroadcast(out, {&x1, &x2});
  return [=] { out.Store(compare(x1, x2)); };
}

at::Tensor Equals(const at::Tensor& x1, const at::Tensor& x2) { return at::eq(x1, x2); }
at::Tensor Different(const at::Tensor& x1, const at::Tensor& x2) { return at::ne(x1, x2); }
at::Tensor Below(const at::Tensor& x1, const at::Tensor& x2) { return at::lt(x1, x2); }
at::Tensor AtMost(const at::Tensor& x1, const at::Tensor& x2) { return at::le(x1, x2); }
at::Tensor Above(const at::Tensor& x1, const at::Tensor& x2) { return at::gt(x1, x2); }
at::Tensor AtLeast(const at::Tensor& x1, const at::Tensor& x2) { return at::ge(x1, x2); }

}  // namespace

CANN_SIM_COMPILED_OPERATOR(Equal) { return PlanComparison(call, Equals); }
CANN_SIM_COMPILED_OPERATOR(NotEqual) { return PlanComparison(call, Different); }
CANN_SIM_COMPILED_OPERATOR(Less) { return PlanComparison(call, Below); }
CANN_SIM_COMPILED_OPERATOR(LessEqual) { return PlanComparison(call, AtMost); }
CANN_SIM_COMPILED_OPERATOR(Greater) { return PlanComparison(call, Above); }
CANN_SIM_COMPILED_OPERATOR(GreaterEqual) { return PlanComparison(call, AtLeast); }

}  // namespace cann_sim::operators
