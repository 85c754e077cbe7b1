// Arithmetic of the older road, which torch_npu takes for tensors in internal formats. One of the operands may be a number of
// the host. Computed in float32 where the values have fewer bits, and rounded once.

#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

constexpr DtypeSet kNumbers = kFloats | kIntegers;

using Binary = at::Tensor(const at::Tensor&, const at::Tensor&);

Plan PlanBinary(const CompiledArguments& call, DtypeSet dtypes, Binary* function) {
  const Tensor out = call.Output(0, "y");
  RequireDtype(out, dtypes);
  if (call.IsOnHost(1)) {
    const Tensor x1 = call.Input(0, "x1");
    const at::Tensor number = call.HostInput(1, "x2");
    RequireBroadcast(out, {&x1});
    return [=] { out.Store(function(x1.Widened(), number)); };
  }
  const Tensor x2 = call.Input(1, "x2");
  if (call.IsOnHost(0)) {
    const at::Tensor number = call.HostInput(0, "x1");
    RequireBroadcast(out, {&x2});
    return [=] { out.Store(function(number, x2.Widened())); };
  }
  const Tensor x1 = call.Input(0, "x1");
  RequireSameDtype(x2, x1);
  RequireBroadcast(out, {&x1, &x2});
  return [=] { out.Store(function(x1.Widened(), x2.Widened())); };
}

using Unary = at::Tensor(const at::Tensor&);

Plan PlanUnary(const CompiledArguments& call, DtypeSet dtypes, Unary* function) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireDtype(x, dtypes);
  RequireShape(out, x.sizes());
  return [=] { out.Store(function(x.Widened())); };
}

at::Tensor Sum(const at::Tensor& x1, const at::Tensor& x2) { return at::add(x1, x2); }
at::Tensor Difference(const at::Tensor& x1, const at::Tensor& x2) { return at::sub(x1, x2); }
at::Tensor ElementwiseProduct(const at::Tensor& x1, const at::Tensor& x2) { return at::mul(x1, x2); }
at::Tensor Quotient(const at::Tensor& x1, const at::Tensor& x2) { return at::div(x1, x2); }
at::Tensor Zeros(const at::Tensor& x) { return at::zeros_like(x); }
at::Tensor Same(const at::Tensor& x) { return x; }

}  // namespace

CANN_SIM_COMPILED_OPERATOR(Add) { return PlanBinary(call, kNumbers, Sum); }
CANN_SIM_COMPILED_OPERATOR(Sub) { return PlanBinary(call, kNumbers, Difference); }
CANN_SIM_COMPILED_OPERATOR(Mul) { return PlanBinary(call, kNumbers, ElementwiseProduct); }
CANN_SIM_COMPILED_OPERATOR(RealDiv) { return PlanBinary(call, kFloats, Quotient); }
CANN_SIM_COMPILED_OPERATOR(Maximum) { return PlanBinary(call, kNumbers, at::maximum); }
CANN_SIM_COMPILED_OPERATOR(Minimum) { return PlanBinary(call, kNumbers, at::minimum); }

CANN_SIM_COMPILED_OPERATOR(Abs) { return PlanUnary(call, kNumbers, at::abs); }
CANN_SIM_COMPILED_OPERATOR(Exp) { return PlanUnary(call, kFloats, at::exp); }
CANN_SIM_COMPILED_OPERATOR(Neg) { return PlanUnary(call, kNumbers, at::neg); }
CANN_SIM_COMPILED_OPERATOR(Relu) { return PlanUnary(call, kNumbers, at::relu); }
CANN_SIM_COMPILED_OPERATOR(Rsqrt) { return PlanUnary(call, kFloats, at::rsqrt); }
CANN_SIM_COMPILED_OPERATOR(Sqrt) { return PlanUnary(call, kFloats, at::sqrt); }
CANN_SIM_COMPILED_OPERATOR(Square) { return PlanUnary(call, kNumbers, at::square); }
CANN_SIM_COMPILED_OPERATOR(ZerosLike) { return PlanUnary(call, kReals, Zeros); }
CANN_SIM_COMPILED_OPERATOR(Cast) { return PlanUnary(call, kReals, Same); }

}  // namespace cann_sim::operators
