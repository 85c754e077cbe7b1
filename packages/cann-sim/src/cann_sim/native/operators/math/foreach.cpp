// One function over every tensor of a list. Half precisions are computed in float32 and rounded once.

#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/div.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/frac.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>

#include <functional>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

// What a kernel computes on: floats in float32 at least, all else as it is.
at::Tensor Computed(const Tensor& tensor) { return tensor.is_floating_point() ? tensor.Widened() : at::Tensor(tensor); }

void RequireLength(const char* name, size_t length, const TensorList& like) {
  if (length != like.size()) {
    RefuseArgument(name, std::to_string(like.size()) + " elements as '" + like.name() + "'", std::to_string(length));
  }
}

void RequireListDtype(const TensorList& list, DtypeSet allowed) {
  for (const OptionalTensor& tensor : list) {
    RequireSimulated(*tensor, allowed);
  }
}

using Nth = std::function<at::Tensor(size_t index, const at::Tensor& value)>;

// out[i] = f(i, self[i])
Plan Each(Nth function, const TensorList& self, const TensorList& out) {
  RequireListDtype(self, kFloats | kDouble | kIntegers);
  RequireLength(out.name(), out.size(), self);
  return [=] {
    for (size_t index = 0; index < self.size(); ++index) {
      out[index]->Store(function(index, Computed(*self[index])));
    }
  };
}

using Unary = at::Tensor (*)(const at::Tensor&);
using Binary = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
using WithScalar = std::function<at::Tensor(const at::Tensor&, const c10::Scalar&)>;

Plan EachPair(Binary function, const TensorList& self, const TensorList& other, const TensorList& out) {
  RequireLength(other.name(), other.size(), self);
  return Each([=](size_t index, const at::Tensor& value) { return function(value, Computed(*other[index])); }, self, out);
}

Plan EachWithScalar(WithScalar function, const TensorList& self, const c10::Scalar& scalar, const TensorList& out) {
  return Each([=](size_t, const at::Tensor& value) { return function(value, scalar); }, self, out);
}

Plan EachWithScalar(WithScalar function, const TensorList& self, const ScalarList& scalars, const TensorList& out) {
  RequireLength(scalars.name(), scalars.values().size(), self);
  return Each([=](size_t index, const at::Tensor& value) { return function(value, scalars.values()[index]); }, self, out);
}

using Ternary =
    std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const c10::Scalar&)>;

// Of float16 the kernels compute in float16, and every step rounds: the product or quotient, that times the number, the sum.
at::Tensor SteppedAddcmul(const at::Tensor& x, const at::Tensor& y, const at::Tensor& z, const c10::Scalar& value) {
  return at::add(x, at::mul(at::mul(y, z), at::Scalar(static_cast<float>(c10::Half(value.toFloat())))));
}
at::Tensor SteppedAddcdiv(const at::Tensor& x, const at::Tensor& y, const at::Tensor& z, const c10::Scalar& value) {
  return at::add(x, at::mul(at::div(y, z), at::Scalar(static_cast<float>(c10::Half(value.toFloat())))));
}

Plan EachTriple(Ternary function, Ternary of_halves, const TensorList& self, const TensorList& first,
                const TensorList& second, std::function<c10::Scalar(size_t)> scalar, const TensorList& out) {
  RequireLength(first.name(), first.size(), self);
  RequireLength(second.name(), second.size(), self);
  return Each(
      [=](size_t index, const at::Tensor& value) {
        if (self[index]->dtype() == c10::ScalarType::Half) {
          return of_halves(*self[index], *first[index], *second[index], scalar(index));
        }
        return function(value, Computed(*first[index]), Computed(*second[index]), scalar(index));
      },
      self, out);
}

// The numbers of the rounding modes are op-plugin's.
at::Tensor RoundedOff(const at::Tensor& value, int64_t mode) {
  switch (mode) {
    case 1: return at::round(value);
    case 2: return at::floor(value);
    case 3: return at::ceil(value);
    case 5: return at::trunc(value);
    case 7: return at::frac(value);
    default:
      throw Refusal("argument 'roundMode': expected 1 (round), 2 (floor), 3 (ceil), 5 (trunc) or 7 (frac), found " +
                    std::to_string(mode));
  }
}

at::Tensor AddScalar(const at::Tensor& x, const c10::Scalar& y) { return at::add(x, y); }
at::Tensor SubScalar(const at::Tensor& x, const c10::Scalar& y) { return at::sub(x, y); }
at::Tensor MulScalar(const at::Tensor& x, const c10::Scalar& y) { return at::mul(x, y); }
at::Tensor DivScalar(const at::Tensor& x, const c10::Scalar& y) { return at::div(x, y); }
at::Tensor PowScalar(const at::Tensor& x, const c10::Scalar& y) { return at::pow(x, y); }
at::Tensor MaximumScalar(const at::Tensor& x, const c10::Scalar& y) { return at::clamp_min(x, y); }
at::Tensor MinimumScalar(const at::Tensor& x, const c10::Scalar& y) { return at::clamp_max(x, y); }
at::Tensor LerpScalar(const at::Tensor& x, const at::Tensor& y, const c10::Scalar& weight) {
  return at::lerp(x, y, weight);
}

}  // namespace

#define CANN_SIM_FOREACH(Name, function)                                        \
  CANN_SIM_OPERATOR(aclnnForeach##Name, (TensorList, x), (TensorList, out)) {   \
    const Unary each = at::function;                                            \
    return Each([=](size_t, const at::Tensor& value) { return each(value); }, x, out); \
  }

CANN_SIM_FOREACH(Abs, abs)
CANN_SIM_FOREACH(Acos, acos)
CANN_SIM_FOREACH(Asin, asin)
CANN_SIM_FOREACH(Atan, atan)
CANN_SIM_FOREACH(Cos, cos)
CANN_SIM_FOREACH(Cosh, cosh)
CANN_SIM_FOREACH(Erf, erf)
CANN_SIM_FOREACH(Erfc, erfc)
CANN_SIM_FOREACH(Exp, exp)
CANN_SIM_FOREACH(Expm1, expm1)
CANN_SIM_FOREACH(Log, log)
CANN_SIM_FOREACH(Log10, log10)
CANN_SIM_FOREACH(Log1p, log1p)
CANN_SIM_FOREACH(Log2, log2)
CANN_SIM_FOREACH(Neg, neg)
CANN_SIM_FOREACH(Reciprocal, reciprocal)
CANN_SIM_FOREACH(Sigmoid, sigmoid)
CANN_SIM_FOREACH(Sign, sign)
CANN_SIM_FOREACH(Sin, sin)
CANN_SIM_FOREACH(Sinh, sinh)
CANN_SIM_FOREACH(Sqrt, sqrt)
CANN_SIM_FOREACH(Tan, tan)
CANN_SIM_FOREACH(Tanh, tanh)

#define CANN_SIM_FOREACH_SCALAR(Name)                                                                       \
  CANN_SIM_OPERATOR(aclnnForeach##Name##ScalarV2, (TensorList, x), (Scalar, scalar), (TensorList, out)) {   \
    return EachWithScalar(Name##Scalar, x, scalar.value(), out);                                            \
  }                                                                                                         \
  CANN_SIM_OPERATOR(aclnnForeach##Name##ScalarList, (TensorList, x), (ScalarList, scalars), (TensorList, out)) { \
    return EachWithScalar(Name##Scalar, x, scalars, out);                                                   \
  }

CANN_SIM_FOREACH_SCALAR(Add)
CANN_SIM_FOREACH_SCALAR(Sub)
CANN_SIM_FOREACH_SCALAR(Mul)
CANN_SIM_FOREACH_SCALAR(Div)
CANN_SIM_FOREACH_SCALAR(Pow)
CANN_SIM_FOREACH_SCALAR(Maximum)
CANN_SIM_FOREACH_SCALAR(Minimum)

#define CANN_SIM_FOREACH_LIST(Name, function)                                                             \
  CANN_SIM_OPERATOR(aclnnForeach##Name##List, (TensorList, x1), (TensorList, x2), (TensorList, out)) {    \
    return EachPair([](const at::Tensor& x, const at::Tensor& y) { return at::function(x, y); }, x1, x2, out); \
  }

CANN_SIM_FOREACH_LIST(Mul, mul)
CANN_SIM_FOREACH_LIST(Div, div)
CANN_SIM_FOREACH_LIST(Pow, pow)
CANN_SIM_FOREACH_LIST(Maximum, maximum)
CANN_SIM_FOREACH_LIST(Minimum, minimum)

// x1 + alpha * x2 and x1 - alpha * x2.
#define CANN_SIM_FOREACH_SUM(Name, function)                                                                              \
  CANN_SIM_OPERATOR(aclnnForeach##Name##ListV2, (TensorList, x1), (TensorList, x2), (Scalar, alpha), (TensorList, out)) { \
    const c10::Scalar factor = alpha;                                                                                     \
    return EachPair([=](const at::Tensor& x, const at::Tensor& y) { return at::function(x, y, factor); }, x1, x2, out);   \
  }

CANN_SIM_FOREACH_SUM(Add, add)
CANN_SIM_FOREACH_SUM(Sub, sub)

#define CANN_SIM_FOREACH_TERNARY(Name, function)                                                                          \
  CANN_SIM_OPERATOR(aclnnForeach##Name##ScalarV2, (TensorList, x1), (TensorList, x2), (TensorList, x3), (Scalar, scalar), \
                    (TensorList, out)) {                                                                                  \
    const c10::Scalar value = scalar;                                                                                     \
    return EachTriple(at::function, Stepped##Name, x1, x2, x3, [=](size_t) { return value; }, out);                                      \
  }

CANN_SIM_FOREACH_TERNARY(Addcmul, addcmul)
CANN_SIM_FOREACH_TERNARY(Addcdiv, addcdiv)

// One scalar for each tensor, in device memory.
#define CANN_SIM_FOREACH_TERNARY_LIST(Name, function)                                                                  \
  CANN_SIM_OPERATOR(aclnnForeach##Name##ScalarList, (TensorList, x1), (TensorList, x2), (TensorList, x3),              \
                    (Tensor, scalars), (TensorList, out)) {                                                            \
    RequireLength(scalars.name(), static_cast<size_t>(scalars.numel()), x1);                                           \
    return EachTriple(                                                                                                 \
        at::function, Stepped##Name, x1, x2, x3,                                                                       \
        [=](size_t index) { return at::Tensor(scalars).view({-1})[static_cast<int64_t>(index)].item(); }, out);        \
  }

CANN_SIM_FOREACH_TERNARY_LIST(Addcmul, addcmul)
CANN_SIM_FOREACH_TERNARY_LIST(Addcdiv, addcdiv)

CANN_SIM_OPERATOR(aclnnForeachLerpList, (TensorList, x1), (TensorList, x2), (TensorList, weight), (TensorList, out)) {
  RequireLength(x2.name(), x2.size(), x1);
  RequireLength(weight.name(), weight.size(), x1);
  return Each(
      [=](size_t index, const at::Tensor& value) {
        return at::lerp(value, Computed(*x2[index]), Computed(*weight[index]));
      },
      x1, out);
}
CANN_SIM_OPERATOR(aclnnForeachLerpScalar, (TensorList, x1), (TensorList, x2), (Scalar, weight), (TensorList, out)) {
  const c10::Scalar share = weight;
  return EachPair([=](const at::Tensor& x, const at::Tensor& y) { return LerpScalar(x, y, share); }, x1, x2, out);
}
CANN_SIM_OPERATOR(aclnnForeachPowScalarAndTensor, (Scalar, scalar), (TensorList, x), (TensorList, out)) {
  const c10::Scalar base = scalar;
  return EachWithScalar([](const at::Tensor& exponent, const c10::Scalar& value) { return at::pow(value, exponent); }, x,
                        base, out);
}
CANN_SIM_OPERATOR(aclnnForeachRoundOffNumberV2, (TensorList, x), (Scalar, roundMode), (TensorList, out)) {
  return EachWithScalar(
      [](const at::Tensor& value, const c10::Scalar& mode) { return RoundedOff(value, mode.toLong()); }, x,
      roundMode.value(), out);
}
CANN_SIM_OPERATOR(aclnnForeachNorm, (TensorList, x), (Scalar, ord), (TensorList, out)) {
  RequireListDtype(x, kFloats);
  return EachWithScalar(
      [](const at::Tensor& value, const c10::Scalar& order) { return at::linalg_vector_norm(value, order); }, x,
      ord.value(), out);
}
CANN_SIM_OPERATOR(aclnnForeachCopy, (TensorList, x), (TensorList, out)) {
  RequireLength(out.name(), out.size(), x);
  return [=] {
    for (size_t index = 0; index < x.size(); ++index) {
      out[index]->Store(*x[index]);
    }
  };
}
CANN_SIM_OPERATOR(aclnnForeachZeroInplace, (TensorList, x)) {
  return [=] {
    for (const OptionalTensor& tensor : x) {
      at::Tensor(*tensor).zero_();
    }
  };
}

// Multiplies by the inverse scale, and sets `foundInf` where a gradient is not finite.
CANN_SIM_OPERATOR(aclnnForeachNonFiniteCheckAndUnscale, (TensorList, scaledGrads), (Tensor, foundInf),
                  (Tensor, invScale)) {
  RequireListDtype(scaledGrads, kFloats);
  return [=] {
    const float factor = at::Tensor(invScale).item<float>();
    for (const OptionalTensor& gradient : scaledGrads) {
      const at::Tensor wide = gradient->Widened();
      if (!wide.isfinite().all().item<bool>()) {
        at::Tensor(foundInf).fill_(1);
      }
      gradient->Store(at::mul(wide, factor));
    }
  };
}

}  // namespace cann_sim::operators
