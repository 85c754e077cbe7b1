// One-input arithmetic: out[i] = f(self[i]). Half precisions are computed in float32 and rounded once.

#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/angle.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/frac.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/isposinf.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/logit.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sgn.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinc.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/trunc.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using Function = at::Tensor (*)(const at::Tensor&);

// f over float32 (float64 stays); integers become floats.
Plan InFloat(Function function, const Tensor& self, const Tensor& out) {
  RequireSimulated(self, kReals | kComplex);
  RequireSimulated(out, kFloats | kDouble | kComplex);
  RequireShape(out, self.sizes());
  if (c10::isComplexType(self.dtype())) {
    return [=] { out.Store(function(self)); };
  }
  return [=] { out.Store(function(self.Widened())); };
}

// f that is exact in every dtype, so it needs no wider one.
Plan Exact(Function function, const Tensor& self, const Tensor& out, DtypeSet allowed) {
  RequireSimulated(self, allowed);
  RequireShape(out, self.sizes());
  return [=] { out.Store(function(self)); };
}

}  // namespace

#define CANN_SIM_FLOAT_FUNCTION(Name, function)                           \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (Tensor, out)) {         \
    return InFloat(at::function, self, out);                                \
  }                                                                       \
  CANN_SIM_OPERATOR(aclnnInplace##Name, (Tensor, self)) {                 \
    return InFloat(at::function, self, self);                               \
  }

CANN_SIM_FLOAT_FUNCTION(Acos, acos)
CANN_SIM_FLOAT_FUNCTION(Acosh, acosh)
CANN_SIM_FLOAT_FUNCTION(Asin, asin)
CANN_SIM_FLOAT_FUNCTION(Asinh, asinh)
CANN_SIM_FLOAT_FUNCTION(Atan, atan)
CANN_SIM_FLOAT_FUNCTION(Atanh, atanh)
CANN_SIM_FLOAT_FUNCTION(Cos, cos)
CANN_SIM_FLOAT_FUNCTION(Cosh, cosh)
CANN_SIM_FLOAT_FUNCTION(Erf, erf)
CANN_SIM_FLOAT_FUNCTION(Erfc, erfc)
CANN_SIM_FLOAT_FUNCTION(Erfinv, erfinv)
CANN_SIM_FLOAT_FUNCTION(Exp, exp)
CANN_SIM_FLOAT_FUNCTION(Exp2, exp2)
CANN_SIM_FLOAT_FUNCTION(Expm1, expm1)
CANN_SIM_FLOAT_FUNCTION(Log, log)
CANN_SIM_FLOAT_FUNCTION(Log10, log10)
CANN_SIM_FLOAT_FUNCTION(Log1p, log1p)
CANN_SIM_FLOAT_FUNCTION(Log2, log2)
CANN_SIM_FLOAT_FUNCTION(Reciprocal, reciprocal)
CANN_SIM_FLOAT_FUNCTION(Rsqrt, rsqrt)
CANN_SIM_FLOAT_FUNCTION(Sin, sin)
CANN_SIM_FLOAT_FUNCTION(Sinc, sinc)
CANN_SIM_FLOAT_FUNCTION(Sinh, sinh)
CANN_SIM_FLOAT_FUNCTION(Sqrt, sqrt)
CANN_SIM_FLOAT_FUNCTION(Tan, tan)

#define CANN_SIM_EXACT_FUNCTION(Name, function, allowed)                  \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (Tensor, out)) {         \
    return Exact(at::function, self, out, allowed);                       \
  }

#define CANN_SIM_EXACT_INPLACE_FUNCTION(Name, function, allowed)          \
  CANN_SIM_EXACT_FUNCTION(Name, function, allowed)                        \
  CANN_SIM_OPERATOR(aclnnInplace##Name, (Tensor, self)) {                 \
    return Exact(at::function, self, self, allowed);                      \
  }

CANN_SIM_EXACT_FUNCTION(Abs, abs, kFloats | kDouble | kIntegers | kComplex)
CANN_SIM_EXACT_INPLACE_FUNCTION(Ceil, ceil, kFloats | kDouble)
CANN_SIM_EXACT_INPLACE_FUNCTION(Floor, floor, kFloats | kDouble | kIntegers)
CANN_SIM_EXACT_INPLACE_FUNCTION(Frac, frac, kFloats | kDouble)
CANN_SIM_EXACT_FUNCTION(Neg, neg, kFloats | kDouble | kIntegers | kComplex)
CANN_SIM_EXACT_FUNCTION(Round, round, kFloats | kDouble | kIntegers)
CANN_SIM_EXACT_FUNCTION(Trunc, trunc, kFloats | kDouble | kIntegers)
CANN_SIM_EXACT_FUNCTION(Sign, sgn, kReals | kComplex)
CANN_SIM_EXACT_FUNCTION(Signbit, signbit, kReals)
CANN_SIM_EXACT_FUNCTION(IsFinite, isfinite, kReals)
CANN_SIM_EXACT_FUNCTION(IsPosInf, isposinf, kReals)
CANN_SIM_EXACT_FUNCTION(IsNegInf, isneginf, kReals)
CANN_SIM_EXACT_INPLACE_FUNCTION(LogicalNot, logical_not, kReals)
CANN_SIM_EXACT_FUNCTION(BitwiseNot, bitwise_not, kIntegers | kBool)

namespace {

Plan NanToNum(const Tensor& self, float nan, float positive, float negative, const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireSameDtype(out, self);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::nan_to_num(self, nan, positive, negative)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnNanToNum, (Tensor, self), (Float, nan), (Float, posinf), (Float, neginf), (Tensor, out)) {
  return NanToNum(self, nan, posinf, neginf, out);
}
CANN_SIM_OPERATOR(aclnnInplaceNanToNum, (Tensor, selfRef), (Float, nan), (Float, posinf), (Float, neginf)) {
  return NanToNum(selfRef, nan, posinf, neginf, selfRef);
}

namespace {

Plan RoundDecimals(const Tensor& self, int64_t decimals, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble | kIndices);
  RequireSameDtype(out, self);
  RequireShape(out, self.sizes());
  return [=] { out.Store(self.is_floating_point() ? at::round(self.Widened(), decimals) : at::Tensor(self)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnRoundDecimals, (Tensor, self), (Int, decimals), (Tensor, out)) {
  return RoundDecimals(self, decimals, out);
}
CANN_SIM_OPERATOR(aclnnInplaceRoundDecimals, (Tensor, selfRef), (Int, decimals)) {
  return RoundDecimals(selfRef, decimals, selfRef);
}

// 0 for a number of at least 0, pi for a negative one, the argument of a complex number.
CANN_SIM_OPERATOR(aclnnAngleV2, (Tensor, self), (Tensor, out)) {
  RequireSimulated(self, kReals | DtypeSet{c10::ScalarType::ComplexFloat});
  RequireSimulated(out, kFloats | kDouble);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::angle(c10::isComplexType(self.dtype()) ? at::Tensor(self) : self.Widened())); };
}

// log(x / (1 - x)); x is clamped to [eps, 1 - eps] where eps is not negative.
CANN_SIM_OPERATOR(aclnnLogit, (Tensor, self), (Double, eps), (Tensor, out)) {
  RequireSimulated(self, kFloats);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::logit(self.Widened(), eps < 0 ? std::nullopt : std::optional<double>(eps))); };
}

}  // namespace cann_sim::operators
