// Arithmetic on two operands, either of which may be a host scalar where the interface has a variant for it.

#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sub.h>

#include "../interface/data_type.h"
#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr DtypeSet kNumbers = kFloats | kDouble | kIntegers | kBool | kComplex;

void RequireElementwise(const Tensor& self, const Tensor& out, DtypeSet allowed = kNumbers) {
  RequireSimulated(self, allowed);
  RequireShape(out, self.sizes());
}

void RequireElementwise(const Tensor& self, const Tensor& other, const Tensor& out, DtypeSet allowed = kNumbers) {
  RequireSimulated(self, allowed);
  RequireSimulated(other, allowed);
  RequireBroadcast(out, {&self, &other});
  const c10::ScalarType common = c10::promoteTypes(self.dtype(), other.dtype());
  if (!c10::canCast(common, out.dtype())) {
    throw Refusal(std::string("argument '") + out.name() + "': the common dtype " + NameOf(common) +
                  " can't be cast to the desired output type " + NameOf(out.dtype()));
  }
}

// The device holds a half precision operand in float32 until the result is rounded; ATen does the same for one
// operation, but not for the product and the sum of `self + alpha * other`.
bool NeedsWidening(const Tensor& self, const Scalar& alpha) {
  return kHalves.contains(self.dtype()) && alpha.value().toDouble() != 1.0;
}

// A number as CANN passes it to a kernel together with a tensor: a tensor of the same dtype.
c10::Scalar InDtypeOf(const Tensor& tensor, const c10::Scalar& number) {
  switch (tensor.dtype()) {
    case c10::ScalarType::Half: return static_cast<float>(c10::Half(number.toFloat()));
    case c10::ScalarType::BFloat16: return static_cast<float>(c10::BFloat16(number.toFloat()));
    default: return number;
  }
}

// The product of two numbers that a kernel made in the dtype of the tensor.
c10::Scalar ProductInDtypeOf(const Tensor& tensor, const c10::Scalar& one, const c10::Scalar& other) {
  return InDtypeOf(tensor, InDtypeOf(tensor, one).toFloat() * InDtypeOf(tensor, other).toFloat());
}

bool IsBfloat16(const Tensor& tensor) { return tensor.dtype() == c10::ScalarType::BFloat16; }

// For bfloat16 there is no kernel of `self + alpha * other`, but one of the product, which rounds, and one of the sum.
Plan Add(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& out) {
  RequireElementwise(self, other, out, kNumbers | kComplex);
  if (NeedsWidening(self, alpha) && IsBfloat16(self) && IsBfloat16(other)) {
    return [=] { out.Store(at::add(self, at::mul(other, InDtypeOf(self, alpha)))); };
  }
  if (NeedsWidening(self, alpha)) {
    return [=] { out.Store(at::add(self.Widened(), other.Widened(), alpha)); };
  }
  return [=] { out.Store(at::add(self, other, alpha)); };
}

Plan Adds(const Tensor& self, const Scalar& other, const Scalar& alpha, const Tensor& out) {
  RequireElementwise(self, out);
  if (NeedsWidening(self, alpha) && IsBfloat16(self)) {
    return [=] { out.Store(at::add(self.Widened(), ProductInDtypeOf(self, other, alpha))); };
  }
  if (kHalves.contains(self.dtype())) {
    return [=] { out.Store(at::add(self.Widened(), InDtypeOf(self, other), alpha)); };
  }
  return [=] { out.Store(at::add(self, other, alpha)); };
}

Plan Sub(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& out) {
  RequireElementwise(self, other, out, kNumbers | kComplex);
  if (NeedsWidening(self, alpha)) {
    return [=] { out.Store(at::sub(self.Widened(), other.Widened(), alpha)); };
  }
  return [=] { out.Store(at::sub(self, other, alpha)); };
}

Plan Subs(const Tensor& self, const Scalar& other, const Scalar& alpha, const Tensor& out) {
  RequireElementwise(self, out);
  if (kHalves.contains(self.dtype())) {
    return [=] { out.Store(at::sub(self.Widened(), InDtypeOf(self, other), alpha)); };
  }
  return [=] { out.Store(at::sub(self, other, alpha)); };
}

// A product or quotient with a number rounds the number to float16, but not to bfloat16.
c10::Scalar Factor(const Tensor& self, const c10::Scalar& number) {
  return IsBfloat16(self) ? number : InDtypeOf(self, number);
}

Plan Mul(const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireElementwise(self, other, out, kNumbers | kComplex);
  return [=] { out.Store(at::mul(self, other)); };
}

Plan Muls(const Tensor& self, const Scalar& other, const Tensor& out) {
  RequireElementwise(self, out, kNumbers | kComplex);
  if (kHalves.contains(self.dtype())) {
    return [=] { out.Store(at::mul(self.Widened(), Factor(self, other))); };
  }
  return [=] { out.Store(at::mul(self, other)); };
}

Plan Div(const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireElementwise(self, other, out, kNumbers | kComplex);
  return [=] { out.Store(at::div(self, other)); };
}

Plan Divs(const Tensor& self, const Scalar& other, const Tensor& out) {
  RequireElementwise(self, out);
  if (kHalves.contains(self.dtype())) {
    return [=] { out.Store(at::div(self.Widened(), Factor(self, other))); };
  }
  return [=] { out.Store(at::div(self, other)); };
}

// Rounding mode of aclnnDivMod.
std::optional<c10::string_view> RoundingMode(const Int32& mode) {
  switch (mode) {
    case 0: return std::nullopt;
    case 1: return "trunc";
    case 2: return "floor";
    default: RefuseArgument(mode.name(), "0 (true), 1 (trunc) or 2 (floor)", std::to_string(mode));
  }
}

Plan DivMod(const Tensor& self, const Tensor& other, const Int32& mode, const Tensor& out) {
  RequireElementwise(self, other, out);
  const auto rounding = RoundingMode(mode);
  return [=] { out.Store(at::div(self, other, rounding)); };
}

Plan DivMods(const Tensor& self, const Scalar& other, const Int32& mode, const Tensor& out) {
  RequireElementwise(self, out);
  const auto rounding = RoundingMode(mode);
  return [=] { out.Store(at::div(self, other, rounding)); };
}

Plan FloorDivide(const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireElementwise(self, other, out);
  return [=] { out.Store(at::floor_divide(self, other)); };
}

Plan FloorDivides(const Tensor& self, const Scalar& other, const Tensor& out) {
  RequireElementwise(self, out);
  return [=] { out.Store(at::floor_divide(self, other)); };
}

Plan PowTensorScalar(const Tensor& self, const Scalar& exponent, const Tensor& out) {
  RequireElementwise(self, out);
  if (kHalves.contains(self.dtype())) {
    return [=] { out.Store(at::pow(self.Widened(), exponent)); };
  }
  return [=] { out.Store(at::pow(self, exponent)); };
}

Plan PowTensorTensor(const Tensor& self, const Tensor& exponent, const Tensor& out) {
  RequireElementwise(self, exponent, out);
  if (out.is_floating_point()) {
    return [=] { out.Store(at::pow(self.Widened(), exponent.Widened())); };
  }
  return [=] { out.Store(at::pow(self, exponent)); };
}

Plan RemainderTensorTensor(const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireElementwise(self, other, out);
  return [=] { out.Store(at::remainder(self, other)); };
}

Plan RemainderTensorScalar(const Tensor& self, const Scalar& other, const Tensor& out) {
  RequireElementwise(self, out);
  return [=] { out.Store(at::remainder(self, other)); };
}

Plan FmodTensor(const Tensor& self, const Tensor& other, const Tensor& out) {
  RequireElementwise(self, other, out);
  return [=] { out.Store(at::fmod(self, other)); };
}

Plan FmodScalar(const Tensor& self, const Scalar& other, const Tensor& out) {
  RequireElementwise(self, out);
  return [=] { out.Store(at::fmod(self, other)); };
}

// The kernels of Addcmul and Addcdiv compute in float16 what is float16: every step rounds, and so does the factor.
at::Tensor HalfScaled(const at::Tensor& values, const c10::Scalar& factor) {
  return at::mul(values, at::Scalar(static_cast<float>(c10::Half(factor.toFloat()))));
}

Plan Addcmul(const Tensor& self, const Tensor& tensor1, const Tensor& tensor2, const Scalar& value, const Tensor& out) {
  RequireSimulated(self, kNumbers);
  RequireBroadcast(out, {&self, &tensor1, &tensor2});
  if (self.dtype() == c10::ScalarType::Half) {
    return [=] { out.Store(at::add(self, HalfScaled(at::mul(tensor1, tensor2), value))); };
  }
  if (self.is_floating_point()) {
    return [=] { out.Store(at::addcmul(self.Widened(), tensor1.Widened(), tensor2.Widened(), value)); };
  }
  return [=] { out.Store(at::addcmul(self, tensor1, tensor2, value)); };
}

Plan Addcdiv(const Tensor& self, const Tensor& tensor1, const Tensor& tensor2, const Scalar& value, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble);
  RequireBroadcast(out, {&self, &tensor1, &tensor2});
  if (self.dtype() == c10::ScalarType::Half) {
    return [=] { out.Store(at::add(self, HalfScaled(at::div(tensor1, tensor2), value))); };
  }
  return [=] { out.Store(at::addcdiv(self.Widened(), tensor1.Widened(), tensor2.Widened(), value)); };
}

Plan ClampMinTensor(const Tensor& self, const Tensor& least, const Tensor& out) {
  RequireElementwise(self, least, out);
  return [=] { out.Store(at::clamp_min(self, least)); };
}

Plan ClampMaxTensor(const Tensor& self, const Tensor& most, const Tensor& out) {
  RequireElementwise(self, most, out);
  return [=] { out.Store(at::clamp_max(self, most)); };
}

Plan ClampMax(const Tensor& self, const Scalar& most, const Tensor& out) {
  RequireElementwise(self, out);
  return [=] { out.Store(at::clamp_max(self, most)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnAdd, (Tensor, self), (Tensor, other), (Scalar, alpha), (Tensor, out)) {
  return Add(self, other, alpha, out);
}
// The variant for a host `self`, chosen where it is present.
CANN_SIM_OPERATOR(aclnnAddV3, (Scalar, self), (Tensor, other), (Scalar, alpha), (Tensor, out)) {
  RequireElementwise(other, out);
  if (other.is_floating_point()) {
    return [=] { out.Store(at::add(at::mul(other.Widened(), alpha), self)); };
  }
  return [=] { out.Store(at::add(at::mul(other, alpha), self)); };
}
CANN_SIM_OPERATOR(aclnnInplaceAdd, (Tensor, self), (Tensor, other), (Scalar, alpha)) {
  return Add(self, other, alpha, self);
}
CANN_SIM_OPERATOR(aclnnAdds, (Tensor, self), (Scalar, other), (Scalar, alpha), (Tensor, out)) {
  return Adds(self, other, alpha, out);
}
CANN_SIM_OPERATOR(aclnnInplaceAdds, (Tensor, self), (Scalar, other), (Scalar, alpha)) {
  return Adds(self, other, alpha, self);
}
CANN_SIM_OPERATOR(aclnnSub, (Tensor, self), (Tensor, other), (Scalar, alpha), (Tensor, out)) {
  return Sub(self, other, alpha, out);
}
CANN_SIM_OPERATOR(aclnnInplaceSub, (Tensor, self), (Tensor, other), (Scalar, alpha)) {
  return Sub(self, other, alpha, self);
}
CANN_SIM_OPERATOR(aclnnSubs, (Tensor, self), (Scalar, other), (Scalar, alpha), (Tensor, out)) {
  return Subs(self, other, alpha, out);
}
CANN_SIM_OPERATOR(aclnnInplaceSubs, (Tensor, self), (Scalar, other), (Scalar, alpha)) {
  return Subs(self, other, alpha, self);
}
CANN_SIM_OPERATOR(aclnnRsub, (Tensor, self), (Tensor, other), (Scalar, alpha), (Tensor, out)) {
  return Sub(other, self, alpha, out);
}
CANN_SIM_OPERATOR(aclnnRsubs, (Tensor, self), (Scalar, other), (Scalar, alpha), (Tensor, out)) {
  RequireElementwise(self, out);
  if (kHalves.contains(self.dtype())) {
    return [=] { out.Store(at::rsub(self.Widened(), InDtypeOf(self, other), alpha)); };
  }
  return [=] { out.Store(at::rsub(self, other, alpha)); };
}
CANN_SIM_OPERATOR(aclnnMul, (Tensor, self), (Tensor, other), (Tensor, out)) { return Mul(self, other, out); }
CANN_SIM_OPERATOR(aclnnInplaceMul, (Tensor, self), (Tensor, other)) { return Mul(self, other, self); }
CANN_SIM_OPERATOR(aclnnMuls, (Tensor, self), (Scalar, other), (Tensor, out)) { return Muls(self, other, out); }
CANN_SIM_OPERATOR(aclnnInplaceMuls, (Tensor, self), (Scalar, other)) { return Muls(self, other, self); }
CANN_SIM_OPERATOR(aclnnDiv, (Tensor, self), (Tensor, other), (Tensor, out)) { return Div(self, other, out); }
CANN_SIM_OPERATOR(aclnnInplaceDiv, (Tensor, self), (Tensor, other)) { return Div(self, other, self); }
CANN_SIM_OPERATOR(aclnnDivs, (Tensor, self), (Scalar, other), (Tensor, out)) { return Divs(self, other, out); }
CANN_SIM_OPERATOR(aclnnInplaceDivs, (Tensor, self), (Scalar, other)) { return Divs(self, other, self); }
CANN_SIM_OPERATOR(aclnnDivMod, (Tensor, self), (Tensor, other), (Int32, mode), (Tensor, out)) {
  return DivMod(self, other, mode, out);
}
CANN_SIM_OPERATOR(aclnnInplaceDivMod, (Tensor, self), (Tensor, other), (Int32, mode)) {
  return DivMod(self, other, mode, self);
}
CANN_SIM_OPERATOR(aclnnDivMods, (Tensor, self), (Scalar, other), (Int32, mode), (Tensor, out)) {
  return DivMods(self, other, mode, out);
}
CANN_SIM_OPERATOR(aclnnInplaceDivMods, (Tensor, self), (Scalar, other), (Int32, mode)) {
  return DivMods(self, other, mode, self);
}
CANN_SIM_OPERATOR(aclnnFloorDivide, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return FloorDivide(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceFloorDivide, (Tensor, self), (Tensor, other)) { return FloorDivide(self, other, self); }
CANN_SIM_OPERATOR(aclnnFloorDivides, (Tensor, self), (Scalar, other), (Tensor, out)) {
  return FloorDivides(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceFloorDivides, (Tensor, self), (Scalar, other)) {
  return FloorDivides(self, other, self);
}
CANN_SIM_OPERATOR(aclnnRemainderTensorTensor, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return RemainderTensorTensor(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceRemainderTensorTensor, (Tensor, self), (Tensor, other)) {
  return RemainderTensorTensor(self, other, self);
}
CANN_SIM_OPERATOR(aclnnRemainderTensorScalar, (Tensor, self), (Scalar, other), (Tensor, out)) {
  return RemainderTensorScalar(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceRemainderTensorScalar, (Tensor, self), (Scalar, other)) {
  return RemainderTensorScalar(self, other, self);
}
CANN_SIM_OPERATOR(aclnnRemainderScalarTensor, (Scalar, self), (Tensor, other), (Tensor, out)) {
  RequireElementwise(other, out);
  return [=] { out.Store(at::remainder(self.value(), other)); };
}
CANN_SIM_OPERATOR(aclnnFmodTensor, (Tensor, self), (Tensor, other), (Tensor, out)) {
  return FmodTensor(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceFmodTensor, (Tensor, self), (Tensor, other)) { return FmodTensor(self, other, self); }
CANN_SIM_OPERATOR(aclnnFmodScalar, (Tensor, self), (Scalar, other), (Tensor, out)) {
  return FmodScalar(self, other, out);
}
CANN_SIM_OPERATOR(aclnnInplaceFmodScalar, (Tensor, self), (Scalar, other)) { return FmodScalar(self, other, self); }
CANN_SIM_OPERATOR(aclnnPowTensorScalar, (Tensor, self), (Scalar, exponent), (Tensor, out)) {
  return PowTensorScalar(self, exponent, out);
}
CANN_SIM_OPERATOR(aclnnInplacePowTensorScalar, (Tensor, self), (Scalar, exponent)) {
  return PowTensorScalar(self, exponent, self);
}
CANN_SIM_OPERATOR(aclnnPowTensorTensor, (Tensor, self), (Tensor, exponent), (Tensor, out)) {
  return PowTensorTensor(self, exponent, out);
}
CANN_SIM_OPERATOR(aclnnInplacePowTensorTensor, (Tensor, self), (Tensor, exponent)) {
  return PowTensorTensor(self, exponent, self);
}
CANN_SIM_OPERATOR(aclnnPowScalarTensor, (Scalar, self), (Tensor, exponent), (Tensor, out)) {
  RequireElementwise(exponent, out);
  if (out.is_floating_point()) {
    return [=] { out.Store(at::pow(self, exponent.Widened())); };
  }
  return [=] { out.Store(at::pow(self, exponent)); };
}
CANN_SIM_OPERATOR(aclnnMaximum, (Tensor, self), (Tensor, other), (Tensor, out)) {
  RequireElementwise(self, other, out);
  return [=] { out.Store(at::maximum(self, other)); };
}
CANN_SIM_OPERATOR(aclnnMinimum, (Tensor, self), (Tensor, other), (Tensor, out)) {
  RequireElementwise(self, other, out);
  return [=] { out.Store(at::minimum(self, other)); };
}
CANN_SIM_OPERATOR(aclnnClamp, (Tensor, self), (OptionalScalar, min), (OptionalScalar, max), (Tensor, out)) {
  RequireElementwise(self, out);
  return [=] { out.Store(at::clamp(self, min, max)); };
}
CANN_SIM_OPERATOR(aclnnClampTensor, (Tensor, self), (OptionalTensor, min), (OptionalTensor, max), (Tensor, out)) {
  RequireSimulated(self, kNumbers);
  return [=] {
    const at::Tensor least = min;
    const at::Tensor most = max;
    out.Store(at::clamp(self, least.defined() ? std::optional(least) : std::nullopt,
                        most.defined() ? std::optional(most) : std::nullopt));
  };
}
CANN_SIM_OPERATOR(aclnnClampMin, (Tensor, self), (Scalar, min), (Tensor, out)) {
  RequireElementwise(self, out);
  return [=] { out.Store(at::clamp_min(self, min)); };
}
CANN_SIM_OPERATOR(aclnnClampMax, (Tensor, self), (Scalar, max), (Tensor, out)) { return ClampMax(self, max, out); }
CANN_SIM_OPERATOR(aclnnInplaceClampMax, (Tensor, self), (Scalar, max)) { return ClampMax(self, max, self); }
CANN_SIM_OPERATOR(aclnnClampMinTensor, (Tensor, self), (Tensor, min), (Tensor, out)) {
  return ClampMinTensor(self, min, out);
}
CANN_SIM_OPERATOR(aclnnInplaceClampMinTensor, (Tensor, self), (Tensor, min)) {
  return ClampMinTensor(self, min, self);
}
CANN_SIM_OPERATOR(aclnnClampMaxTensor, (Tensor, self), (Tensor, max), (Tensor, out)) {
  return ClampMaxTensor(self, max, out);
}
CANN_SIM_OPERATOR(aclnnInplaceClampMaxTensor, (Tensor, self), (Tensor, max)) {
  return ClampMaxTensor(self, max, self);
}
CANN_SIM_OPERATOR(aclnnAtan2, (Tensor, self), (Tensor, other), (Tensor, out)) {
  RequireElementwise(self, other, out);
  return [=] { out.Store(at::atan2(self.Widened(), other.Widened())); };
}
CANN_SIM_OPERATOR(aclnnAddcmul, (Tensor, self), (Tensor, tensor1), (Tensor, tensor2), (Scalar, value), (Tensor, out)) {
  return Addcmul(self, tensor1, tensor2, value, out);
}
CANN_SIM_OPERATOR(aclnnInplaceAddcmul, (Tensor, self), (Tensor, tensor1), (Tensor, tensor2), (Scalar, value)) {
  return Addcmul(self, tensor1, tensor2, value, self);
}
CANN_SIM_OPERATOR(aclnnAddcdiv, (Tensor, self), (Tensor, tensor1), (Tensor, tensor2), (Scalar, value), (Tensor, out)) {
  return Addcdiv(self, tensor1, tensor2, value, out);
}
CANN_SIM_OPERATOR(aclnnInplaceAddcdiv, (Tensor, self), (Tensor, tensor1), (Tensor, tensor2), (Scalar, value)) {
  return Addcdiv(self, tensor1, tensor2, value, self);
}
CANN_SIM_OPERATOR(aclnnLerp, (Tensor, self), (Tensor, end), (Tensor, weight), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireBroadcast(out, {&self, &end, &weight});
  return [=] { out.Store(at::lerp(self.Widened(), end.Widened(), weight.Widened())); };
}
CANN_SIM_OPERATOR(aclnnLerps, (Tensor, self), (Tensor, end), (Scalar, weight), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireBroadcast(out, {&self, &end});
  return [=] { out.Store(at::lerp(self.Widened(), end.Widened(), weight)); };
}

}  // namespace cann_sim::operators
