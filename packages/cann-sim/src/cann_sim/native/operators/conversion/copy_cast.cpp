// Copies between device tensors: any strides, any pair of dtypes, broadcasting the source.

#include <ATen/ops/clone.h>

#include "../interface/data_type.h"
#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr DtypeSet kCopyable =
    kReals | DtypeSet{c10::ScalarType::UInt16, c10::ScalarType::UInt32, c10::ScalarType::UInt64,
                      c10::ScalarType::ComplexHalf, c10::ScalarType::ComplexFloat, c10::ScalarType::ComplexDouble,
                      c10::ScalarType::Float8_e5m2, c10::ScalarType::Float8_e4m3fn};

}  // namespace

CANN_SIM_OPERATOR(aclnnInplaceCopy, (Tensor, selfRef), (Tensor, src)) {
  RequireDtype(selfRef, kCopyable);
  RequireDtype(src, kCopyable);
  RequireBroadcast(selfRef, {&selfRef, &src});
  return [=] { selfRef.Store(src); };
}

CANN_SIM_OPERATOR(aclnnCast, (Tensor, self), (DataType, dtype), (Tensor, out)) {
  RequireDtype(self, kCopyable);
  RequireShape(out, self.sizes());
  if (ScalarTypeOf(dtype) != out.dtype()) {
    RefuseArgument(out.name(), NameOf(ScalarTypeOf(dtype)), NameOf(out.dtype()));
  }
  return [=] { out.Store(self); };
}

}  // namespace cann_sim::operators
