// Grouped matrix products: rows of the left matrix belong to groups, each with a right matrix of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "../interface/argument.h"
#include "../interface/optional_tensor_list.h"

namespace cann_sim::operators {

// What the numbers in a list of groups are.
enum class GroupListType : int64_t { kTotals = 0, kSizes = 1, kIndexedSizes = 2 };

// A group and the range of rows (or columns) that belong to it.
struct GroupRange {
  int64_t group;
  int64_t begin;
  int64_t end;
};

// The groups of `list`, in order. Throws Refusal where they do not fit into `size`.
std::vector<GroupRange> GroupRanges(const at::Tensor& list, GroupListType type, int64_t size);
// `list` must be int64 of the shape that `type` has for at most 1024 groups.
void RequireGroupList(const Tensor& list, int64_t type);

// Element `group` of a list with one tensor a group, or with one tensor of all groups.
at::Tensor OfGroup(const OptionalTensorList& list, int64_t group, int parameter_rank);

// Whether the last two dimensions are stored the other way round.
bool IsTransposedMatrix(const Tensor& matrix);
// The matrix, or the matrices, as float64 where they are integers, so that sums of products are exact: int8, or int4 eight in
// an int32 along the dimension stored last.
at::Tensor ExactMatrix(const at::Tensor& matrix, bool transposed);
// As ExactMatrix in float32.
at::Tensor IntegerMatrix(const at::Tensor& matrix, bool transposed);

}  // namespace cann_sim::operators
