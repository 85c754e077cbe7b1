// The order in which mixture-of-experts operators lay out the rows of their experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace cann_sim::operators {

// Choices (a token for one of its experts) sorted by expert, in the order they had where the expert is the same.
struct SortedChoices {
  at::Tensor order;    // int64: choice of each sorted position
  at::Tensor experts;  // int64: expert of each sorted position
  at::Tensor others;   // int64: the choices left out, those of experts after `end` first, by expert
};

// The choices whose expert is in [begin, end).
SortedChoices SortChoices(const at::Tensor& experts, int64_t begin, int64_t end);

// int64: number of choices of each of the experts [begin, end).
at::Tensor CountChoices(const SortedChoices& sorted, int64_t begin, int64_t end);

// A slot for each choice, or -1: the sorted position, with a limit of `capacity` choices for each expert the expert's slots in a
// table [experts, capacity].
at::Tensor SlotsWithCapacity(const SortedChoices& sorted, const at::Tensor& counts, int64_t capacity);

}  // namespace cann_sim::operators
