// Comparisons and logic: results are booleans (or the dtype of `out`).

#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/le.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/where.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using TensorFunction = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
using ScalarFunction = at::Tensor (*)(const at::Tensor&, const at::Scalar&);

Plan Compare(TensorFunction function, const Tensor& self, const Tensor& other, const Tensor& out, DtypeSet allowed) {
  RequireSimulated(self, allowed);
  RequireSimulated(other, allowed);
  RequireBroadcast(out, {&self, &other});
  return [=] { out.Store(function(self, other)); };
}

Plan Compare(ScalarFunction function, const Tensor& self, const Scalar& other, const Tensor& out, DtypeSet allowed) {
  RequireSimulated(self, allowed);
  RequireShape(out, self.sizes());
  return [=] { out.Store(function(self, other)); };
}

}  // namespace

#define CANN_SIM_COMPARISON(Name, function)                                                     \
  CANN_SIM_OPERATOR(aclnn##Name##Tensor, (Tensor, self), (Tensor, other), (Tensor, out)) {      \
    return Compare(static_cast<TensorFunction>(at::function), self, other, out, kReals | kComplex);        \
  }                                                                                             \
  CANN_SIM_OPERATOR(aclnnInplace##Name##Tensor, (Tensor, self), (Tensor, other)) {              \
    return Compare(static_cast<TensorFunction>(at::function), self, other, self, kReals | kComplex);       \
  }                                                                                             \
  CANN_SIM_OPERATOR(aclnn##Name##Scalar, (Tensor, self), (Scalar, other), (Tensor, out)) {      \
    return Compare(static_cast<ScalarFunction>(at::function), self, other, out, kReals | kComplex);        \
  }                                                                                             \
  CANN_SIM_OPERATOR(aclnnInplace##Name##Scalar, (Tensor, self), (Scalar, other)) {              \
    return Compare(static_cast<ScalarFunction>(at::function), self, other, self, kReals | kComplex);       \
  }

CANN_SIM_COMPARISON(Eq, eq)
CANN_SIM_COMPARISON(Ne, ne)
CANN_SIM_COMPARISON(Ge, ge)
CANN_SIM_COMPARISON(Gt, gt)
CANN_SIM_COMPARISON(Le, le)
CANN_SIM_COMPARISON(Lt, lt)

#define CANN_SIM_LOGIC(Name, function)                                                          \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (Tensor, other), (Tensor, out)) {              \
    return Compare(static_cast<TensorFunction>(at::function), self, other, out, kReals | kComplex);        \
  }

#define CANN_SIM_INPLACE_LOGIC(Name, function)                                                  \
  CANN_SIM_OPERATOR(aclnnInplace##Name, (Tensor, self), (Tensor, other)) {                      \
    return Compare(static_cast<TensorFunction>(at::function), self, other, self, kReals | kComplex);       \
  }

CANN_SIM_LOGIC(LogicalAnd, logical_and)
CANN_SIM_INPLACE_LOGIC(LogicalAnd, logical_and)
CANN_SIM_LOGIC(LogicalOr, logical_or)
CANN_SIM_INPLACE_LOGIC(LogicalOr, logical_or)
CANN_SIM_LOGIC(LogicalXor, logical_xor)

#define CANN_SIM_BITWISE(Name, function)                                                                 \
  CANN_SIM_OPERATOR(aclnn##Name##Tensor, (Tensor, self), (Tensor, other), (Tensor, out)) {               \
    return Compare(static_cast<TensorFunction>(at::function), self, other, out, kIntegers | kBool);      \
  }                                                                                                      \
  CANN_SIM_OPERATOR(aclnn##Name##Scalar, (Tensor, self), (Scalar, other), (Tensor, out)) {               \
    return Compare(static_cast<ScalarFunction>(at::function), self, other, out, kIntegers | kBool);      \
  }

#define CANN_SIM_INPLACE_BITWISE(Name, function)                                                         \
  CANN_SIM_OPERATOR(aclnnInplace##Name##Tensor, (Tensor, self), (Tensor, other)) {                       \
    return Compare(static_cast<TensorFunction>(at::function), self, other, self, kIntegers | kBool);     \
  }                                                                                                      \
  CANN_SIM_OPERATOR(aclnnInplace##Name##Scalar, (Tensor, self), (Scalar, other)) {                       \
    return Compare(static_cast<ScalarFunction>(at::function), self, other, self, kIntegers | kBool);     \
  }

CANN_SIM_BITWISE(BitwiseAnd, bitwise_and)
CANN_SIM_INPLACE_BITWISE(BitwiseAnd, bitwise_and)
CANN_SIM_BITWISE(BitwiseOr, bitwise_or)
CANN_SIM_BITWISE(BitwiseXor, bitwise_xor)
CANN_SIM_INPLACE_BITWISE(BitwiseXor, bitwise_xor)

// One boolean: same shape and same values.
CANN_SIM_OPERATOR(aclnnEqual, (Tensor, self), (Tensor, other), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSimulated(other, kReals);
  RequireSimulated(out, kBool);
  return [=] { at::Tensor(out).fill_(self.dtype() == other.dtype() && at::equal(self, other)); };
}

CANN_SIM_OPERATOR(aclnnIsClose, (Tensor, self), (Tensor, other), (Double, rtol), (Double, atol), (Bool, equalNan),
                  (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireSameDtype(other, self);
  RequireBroadcast(out, {&self, &other});
  return [=] { out.Store(at::isclose(self, other, rtol, atol, equalNan)); };
}

CANN_SIM_OPERATOR(aclnnSWhere, (Tensor, condition), (Tensor, self), (Tensor, other), (Tensor, out)) {
  RequireSimulated(condition, kBool | DtypeSet{c10::ScalarType::Byte});
  RequireBroadcast(out, {&condition, &self, &other});
  return [=] { out.Store(at::where(at::Tensor(condition).to(at::kBool), self, other)); };
}

}  // namespace cann_sim::operators
