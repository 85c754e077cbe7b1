// Filling and generating tensors.

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

#include <cmath>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr DtypeSet kFillable =
    kReals | kComplex | DtypeSet{c10::ScalarType::UInt16, c10::ScalarType::UInt32, c10::ScalarType::UInt64};

Plan Fill(const Tensor& self, const c10::Scalar& value) {
  RequireSimulated(self, kFillable);
  return [=] { at::Tensor(self).fill_(value); };
}

Plan Tril(const Tensor& self, int64_t diagonal, const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireSameDtype(out, self);
  RequireRank(self, 2, kMaxRank);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::tril(self, diagonal)); };
}

Plan Triu(const Tensor& self, int64_t diagonal, const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireSameDtype(out, self);
  RequireRank(self, 2, kMaxRank);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::triu(self, diagonal)); };
}

// start, start + step, ...; the number of values is the size of `out`.
Plan Arange(const Scalar& start, const Scalar& step, const Tensor& out) {
  RequireSimulated(out, kFloats | kDouble | kIntegers);
  RequireRank(out, 1, 1);
  if (step.value().toDouble() == 0.0) {
    RefuseArgument(step.name(), "a step that is not zero", "0");
  }
  const int64_t count = out.numel();
  if (c10::isIntegralType(out.dtype(), false) && !start.value().isFloatingPoint() && !step.value().isFloatingPoint()) {
    const int64_t first = start.value().toLong();
    const int64_t stride = step.value().toLong();
    return [=] { out.Store(at::arange(count, at::kLong).mul_(stride).add_(first)); };
  }
  const double first = start.value().toDouble();
  const double stride = step.value().toDouble();
  return [=] { out.Store(at::arange(count, at::kDouble).mul_(stride).add_(first)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnInplaceZero, (Tensor, selfRef)) { return Fill(selfRef, 0); }
CANN_SIM_OPERATOR(aclnnInplaceOne, (Tensor, selfRef)) { return Fill(selfRef, 1); }
CANN_SIM_OPERATOR(aclnnInplaceFillScalar, (Tensor, selfRef), (Scalar, value)) { return Fill(selfRef, value); }
CANN_SIM_OPERATOR(aclnnInplaceFillTensor, (Tensor, selfRef), (Tensor, value)) {
  RequireSimulated(selfRef, kFillable);
  if (value.numel() != 1) {
    RefuseArgument(value.name(), "one value", "shape " + Describe(value.sizes()));
  }
  return [=] { at::Tensor(selfRef).fill_(at::Tensor(value).item()); };
}
CANN_SIM_OPERATOR(aclnnArange, (Scalar, start), (Scalar, end), (Scalar, step), (Tensor, out)) {
  return Arange(start, step, out);
}
CANN_SIM_OPERATOR(aclnnRange, (Scalar, start), (Scalar, end), (Scalar, step), (Tensor, out)) {
  return Arange(start, step, out);
}
CANN_SIM_OPERATOR(aclnnLogSpace, (Scalar, start), (Scalar, end), (Int, steps), (Double, base), (Tensor, out)) {
  RequireDtype(out, kFloats | kDouble);
  RequireShape(out, {steps.value()});
  return [=] { out.Store(at::logspace(start, end, steps, base, at::kDouble)); };
}
CANN_SIM_OPERATOR(aclnnLinspace, (Scalar, start), (Scalar, end), (Int, steps), (Tensor, out)) {
  RequireSimulated(out, kFloats | kDouble | kIntegers);
  RequireShape(out, {steps.value()});
  return [=] { out.Store(at::linspace(start, end, steps, at::kDouble)); };
}
CANN_SIM_OPERATOR(aclnnEye, (Int, n), (Int, m), (Tensor, out)) {
  RequireSimulated(out, kReals);
  RequireShape(out, {n.value(), m.value()});
  return [=] { out.Store(at::eye(n, m)); };
}
CANN_SIM_OPERATOR(aclnnTril, (Tensor, self), (Int, diagonal), (Tensor, out)) { return Tril(self, diagonal, out); }
CANN_SIM_OPERATOR(aclnnInplaceTril, (Tensor, self), (Int, diagonal)) { return Tril(self, diagonal, self); }
CANN_SIM_OPERATOR(aclnnTriu, (Tensor, self), (Int, diagonal), (Tensor, out)) { return Triu(self, diagonal, out); }
CANN_SIM_OPERATOR(aclnnInplaceTriu, (Tensor, self), (Int, diagonal)) { return Triu(self, diagonal, self); }

}  // namespace cann_sim::operators
