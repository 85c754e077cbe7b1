// Two-operand functions beyond plain arithmetic, complex numbers made of real ones, and bit shifts.

#include <ATen/ops/add.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/gcd.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logaddexp2.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/xlogy.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using BinaryFunction = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

// f over float32 (float64 stays) of two broadcast operands.
Plan OfTwoInFloat(BinaryFunction function, const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireSimulated(other, kReals);
  RequireSimulated(out, kFloats | kDouble);
  RequireBroadcast(out, {&self, &other});
  return [=] { out.Store(function(self.Widened(), other.Widened())); };
}

// f of two broadcast integer operands.
Plan InIntegers(BinaryFunction function, const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireSimulated(self, kIntegers);
  RequireSimulated(other, kIntegers);
  RequireBroadcast(out, {&self, &other});
  return [=] { out.Store(function(self, other)); };
}

// max(self + alpha * other, 0)
Plan AddRelu(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& out) {
  RequireSimulated(self, kFloats | DtypeSet{c10::ScalarType::Int});
  RequireSameDtype(other, self);
  RequireBroadcast(out, {&self, &other});
  if (self.is_floating_point()) {
    return [=] { out.Store(at::relu(at::add(self.Widened(), other.Widened(), alpha))); };
  }
  return [=] { out.Store(at::relu(at::add(self, other, alpha))); };
}

Plan XLogYScalar(const Tensor& self, const Scalar& other, const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireSimulated(out, kFloats | kDouble);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::xlogy(self.Widened(), other)); };
}

void RequireParts(const Tensor& first, const Tensor& second, const Tensor& out) {
  RequireSimulated(first, {c10::ScalarType::Float, c10::ScalarType::Double});
  RequireSameDtype(second, first);
  RequireSimulated(out, {c10::ScalarType::ComplexFloat, c10::ScalarType::ComplexDouble});
  RequireBroadcast(out, {&first, &second});
}

}  // namespace

CANN_SIM_OPERATOR(aclnnLogAddExp, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return OfTwoInFloat(at::logaddexp, self, other, out);
}
CANN_SIM_OPERATOR(aclnnLogAddExp2, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return OfTwoInFloat(at::logaddexp2, self, other, out);
}
CANN_SIM_OPERATOR(aclnnXLogYTensor, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return OfTwoInFloat(static_cast<BinaryFunction>(at::xlogy), self, other, out);
}
CANN_SIM_OPERATOR(aclnnXLogYScalarOther, (Tensor, self), (Scalar, other), (Tensor, out)) {
  return XLogYScalar(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceXLogYScalarOther, (Tensor, selfRef), (Scalar, other)) {
  return XLogYScalar(selfRef, other, selfRef);
}
CANN_SIM_OPERATOR(aclnnXLogYScalarSelf, (Scalar, self), (Tensor, other), (Tensor, out)) {
  RequireSimulated(other, kReals);
  RequireSimulated(out, kFloats | kDouble);
  RequireShape(out, other.sizes());
  return [=] { out.Store(at::xlogy(self, other.Widened())); };
}
CANN_SIM_OPERATOR(aclnnInplaceAtan2, (Tensor, selfRef), (Tensor, other)) {
  return OfTwoInFloat(at::atan2, selfRef, other, selfRef);
}
CANN_SIM_OPERATOR(aclnnInplaceLerp, (Tensor, selfRef), (Tensor, end), (Tensor, weight)) {
  RequireSimulated(selfRef, kFloats | kDouble);
  RequireBroadcast(selfRef, {&selfRef, &end, &weight});
  return [=] { selfRef.Store(at::lerp(selfRef.Widened(), end.Widened(), weight.Widened())); };
}
CANN_SIM_OPERATOR(aclnnInplaceLerps, (Tensor, selfRef), (Tensor, end), (Scalar, weight)) {
  RequireSimulated(selfRef, kFloats | kDouble);
  RequireBroadcast(selfRef, {&selfRef, &end});
  return [=] { selfRef.Store(at::lerp(selfRef.Widened(), end.Widened(), weight)); };
}
CANN_SIM_OPERATOR(aclnnAddRelu, (Tensor, self), (Tensor, other), (Scalar, alpha), (Tensor, out)) {
  return AddRelu(self, other, alpha, out);
}
CANN_SIM_OPERATOR(aclnnInplaceAddRelu, (Tensor, selfRef), (Tensor, other), (Scalar, alpha)) {
  return AddRelu(selfRef, other, alpha, selfRef);
}
CANN_SIM_OPERATOR(aclnnGcd, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return InIntegers(at::gcd, self, other, out);
}
CANN_SIM_OPERATOR(aclnnLeftShift, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return InIntegers(at::bitwise_left_shift, self, other, out);
}
CANN_SIM_OPERATOR(aclnnLeftShifts, (Tensor, self), (Scalar, other), (Tensor, out)) {
  RequireSimulated(self, kIntegers);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::bitwise_left_shift(self, other.value())); };
}
CANN_SIM_OPERATOR(aclnnRightShift, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return InIntegers(at::bitwise_right_shift, self, other, out);
}
CANN_SIM_OPERATOR(aclnnComplex, (Tensor, real), (Tensor, imag), (Tensor, out)) {
  RequireParts(real, imag, out);
  return [=] { out.Store(at::complex(real, imag)); };
}
CANN_SIM_OPERATOR(aclnnPolar, (Tensor, input), (Tensor, angle), (Tensor, out)) {
  RequireParts(input, angle, out);
  return [=] { out.Store(at::polar(input, angle)); };
}
CANN_SIM_OPERATOR(aclnnLinalgCross, (Tensor, self), (Tensor, other), (Int, dim), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  RequireSameDtype(other, self);
  RequireBroadcast(out, {&self, &other});
  const int64_t axis = WrapDim(dim, self.rank());
  for (const Tensor* factor : {&self, &other}) {
    if (factor->size(static_cast<int>(axis)) != 3) {
      RefuseArgument(factor->name(), "three values in dimension " + std::to_string(axis), Describe(factor->sizes()));
    }
  }
  if (self.is_floating_point()) {
    return [=] { out.Store(at::linalg_cross(self.Widened(), other.Widened(), axis)); };
  }
  return [=] { out.Store(at::linalg_cross(self, other, axis)); };
}

}  // namespace cann_sim::operators
