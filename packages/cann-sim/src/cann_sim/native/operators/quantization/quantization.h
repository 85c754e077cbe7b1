// Rounding to few bits, as every quantising operator does it: to nearest even, saturating, NaN to 0.
#pragma once

#include <ATen/core/Tensor.h>

#include "../interface/argument.h"
#include "../interface/validation.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// What holds quantised values: int8, or int32 with eight int4 in each, the first in the lowest bits.
inline constexpr DtypeSet kQuantized{c10::ScalarType::Char, c10::ScalarType::Int};
inline constexpr int64_t kInt4PerInt32 = 8;

// `y` must be int8 in the shape `sizes`, or int32 with an eighth of it in the last dimension.
void RequireQuantized(const Tensor& y, c10::IntArrayRef sizes);
// The largest value of `y`: 127 in int8, 7 in int4.
double LargestQuantized(const Tensor& y);
// Rounds `values` into an int8 or packed int4 tensor.
void StoreQuantized(const Tensor& y, const at::Tensor& values);
// Rounds `values` into an int8, uint8 or int32 tensor.
void StoreRounded(const Tensor& y, const at::Tensor& values);

// The eight int4 in each int32 of `packed`, the lowest bits first, along the last dimension; in float32.
at::Tensor UnpackInt4(const at::Tensor& packed);
// Scales in float32: int64 and uint64 hold a float32 in their lower half, as the matrix unit reads them.
at::Tensor WidenScale(const Tensor& scale);

// Values scaled so that the largest magnitude of each row becomes `largest`.
struct ScaledRows {
  at::Tensor values;
  // What `values` are to be multiplied with to undo it; without the last dimension. 0 for a row of zeros.
  at::Tensor scale;
};
ScaledRows ScaleRows(const at::Tensor& values, double largest);

// A row for each of `rows` rows: that of its group in `parameters` [groups, width], or `behind` for rows after the last group.
// Group g ends before row ends[g] (int32 or int64, read now).
at::Tensor SpreadGroups(const at::Tensor& parameters, const at::Tensor& ends, int64_t rows, double behind);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
