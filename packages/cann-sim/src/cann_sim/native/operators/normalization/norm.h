// What the normalisations share, with and without quantisation after them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "../interface/argument.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// The last `count` dimensions of `x`.
std::vector<int64_t> TrailingDims(const Tensor& x, size_t count);

// `gamma` must have the trailing shape of `x`.
void RequireTrailingShape(const Tensor& gamma, const Tensor& x);

// Statistics keep the normalised dimensions with size 1.
void RequireStatisticsShape(const Tensor& statistic, const Tensor& x, size_t normalized);

// rstd = 1 / sqrt(mean(x^2) + epsilon) over `dims`, which it keeps with size 1.
at::Tensor ReciprocalRms(const at::Tensor& x, c10::IntArrayRef dims, double epsilon);

// x1 + x2 in float32, rounded to float16 where that is the dtype of `x1`: the device adds float16 in float16.
at::Tensor ResidualSum(const Tensor& x1, const Tensor& x2);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
