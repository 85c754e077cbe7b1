#include "reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace {

// What an operation on the type is computed in, before it is rounded. Unsigned integers wrap around by definition.
template <class T>
struct Wide {
  using Type = float;
};
template <>
struct Wide<int8_t> {
  using Type = uint32_t;
};
template <>
struct Wide<int16_t> {
  using Type = uint32_t;
};
template <>
struct Wide<int32_t> {
  using Type = uint32_t;
};
template <>
struct Wide<int64_t> {
  using Type = uint64_t;
};

template <class T>
bool IsNan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(static_cast<float>(value));
  }
}

template <class T>
T Combine(T left, T right, HcclReduceOp reduction) {
  using W = typename Wide<T>::Type;
  switch (reduction) {
    case HCCL_REDUCE_SUM: return static_cast<T>(static_cast<W>(left) + static_cast<W>(right));
    case HCCL_REDUCE_PROD: return static_cast<T>(static_cast<W>(left) * static_cast<W>(right));
    case HCCL_REDUCE_MAX: return IsNan(left) || left > right ? left : right;
    default: return IsNan(left) || left < right ? left : right;
  }
}

template <class T>
void ReduceAs(void* into, const void* from, size_t count, HcclReduceOp reduction) {
  auto* const left = static_cast<char*>(into);
  const auto* const right = static_cast<const char*>(from);
  for (size_t offset = 0; offset < count * sizeof(T); offset += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, left + offset, sizeof(T));
    std::memcpy(&b, right + offset, sizeof(T));
    a = Combine(a, b, reduction);
    std::memcpy(left + offset, &a, sizeof(T));
  }
}

}  // namespace

namespace cann_sim::collectives {

void Reduce(void* into, const void* from, size_t count, HcclDataType type, HcclReduceOp reduction) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8: return ReduceAs<int8_t>(into, from, count, reduction);
    case HCCL_DATA_TYPE_INT16: return ReduceAs<int16_t>(into, from, count, reduction);
    case HCCL_DATA_TYPE_INT32: return ReduceAs<int32_t>(into, from, count, reduction);
    case HCCL_DATA_TYPE_INT64: return ReduceAs<int64_t>(into, from, count, reduction);
    case HCCL_DATA_TYPE_FP16: return ReduceAs<c10::Half>(into, from, count, reduction);
    case HCCL_DATA_TYPE_BFP16: return ReduceAs<c10::BFloat16>(into, from, count, reduction);
    default: return ReduceAs<float>(into, from, count, reduction);
  }
}

}  // namespace cann_sim::collectives
