// A grouped product of quantised matrices whose rows are weighted and added up by token, in one operator. Computed and stored in
// float32.

#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include <memory>
#include <string>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "quantized_grouped_matmul.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kMostRows = 16 * 1024 * 8;
constexpr int64_t kMostExperts = 256;
// The sizes of int4 matrices that the device takes.
constexpr int64_t kInt4Inner = 2048;
constexpr int64_t kInt4Columns = 7168;

// One call; owned by its kernel.
struct GroupedMatmulFinalize {
  Tensor x, weight, scale;
  OptionalTensor bias, offset;
  Tensor row_scale, group_list;
  OptionalTensor shared;
  Tensor weights, rows_of;
  double shared_factor;
  int64_t shared_start, group_list_type;
  Tensor out;

  void Require() const;
  void Run() const;

 private:
  bool four_bits() const { return weight.dtype() == ScalarType::Int; }
  int64_t columns() const { return weight.size(2) * (four_bits() ? kInt4PerInt32 : 1); }
  void RequireScales() const;
  at::Tensor Product(const at::Tensor& rows, int64_t group) const;
};

void GroupedMatmulFinalize::RequireScales() const {
  const int64_t experts = weight.size(0);
  RequireDtype(scale, four_bits() ? DtypeSet{ScalarType::Long} : DtypeSet{ScalarType::Float});
  if (!four_bits()) {
    RequireShape(scale, {experts, columns()});
    RefuseIfPresent(bias, "a bias beside int8 matrices");
    RefuseIfPresent(offset, "an offset beside int8 matrices");
    return;
  }
  RequireRank(scale, 3, 3);
  RequireShape(scale, {experts, scale.size(1), columns()});
  if (scale.size(1) < 1 || x.size(1) % scale.size(1) != 0) {
    RefuseArgument(scale.name(), "a number of groups that divides " + std::to_string(x.size(1)), Describe(scale.sizes()));
  }
  if (!bias) {
    RefuseArgument(bias.name(), "a tensor beside int4 matrices", "none");
  }
  RequireDtype(*bias, {ScalarType::Float});
  RequireShape(*bias, {experts, columns()});
  if (offset) {
    RequireDtype(*offset, {ScalarType::Float});
    RequireShape(*offset, scale.sizes());
  }
}

void GroupedMatmulFinalize::Require() const {
  RequireDtype(x, {ScalarType::Char});
  RequireRank(x, 2, 2);
  RequireRank(weight, 3, 3);
  RequireShape(weight, {weight.size(0), x.size(1), weight.size(2)});
  if (x.size(0) < 1 || x.size(0) > kMostRows) {
    RefuseArgument(x.name(), "1 to " + std::to_string(kMostRows) + " rows", Describe(x.sizes()));
  }
  if (weight.size(0) < 1 || weight.size(0) > kMostExperts) {
    RefuseArgument(weight.name(), "1 to " + std::to_string(kMostExperts) + " matrices", Describe(weight.sizes()));
  }
  if (four_bits() ? x.size(1) != kInt4Inner || columns() != kInt4Columns
                  : x.size(1) % 16 != 0 || columns() % 32 != 0 || columns() < 256) {
    RefuseArgument(weight.name(),
                   four_bits() ? "2048 rows and 7168 columns of int4"
                               : "a multiple of 16 rows, and of 32 columns but at least 256",
                   Describe(weight.sizes()));
  }
  RequireScales();
  RequireGroupList(group_list, group_list_type);
  RequireShape(group_list, {weight.size(0)});
  for (const Tensor* factors : {&row_scale, &weights}) {
    RequireDtype(*factors, {ScalarType::Float});
    RequireShape(*factors, {x.size(0)});
  }
  RequireDtype(rows_of, kIndices);
  RequireShape(rows_of, {x.size(0)});
  RequireDtype(out, {ScalarType::Float});
  RequireShape(out, {out.size(0), columns()});
  if (shared) {
    RequireDtype(*shared, {ScalarType::BFloat16});
    RequireShape(*shared, {shared->size(0), columns()});
    if (shared_start < 0 || shared_start + shared->size(0) > out.size(0)) {
      RefuseArgument("sharedInputOffset", "room for " + std::to_string(shared->size(0)) + " rows in " +
                                              std::to_string(out.size(0)), std::to_string(shared_start));
    }
  }
}

at::Tensor GroupedMatmulFinalize::Product(const at::Tensor& rows, int64_t group) const {
  const at::Tensor matrix = ExactMatrix(at::Tensor(weight)[group], false);
  const at::Tensor left = rows.to(at::kDouble);
  const at::Tensor own = WidenScale(scale).view(scale.sizes())[group];
  if (!four_bits()) {
    return at::mul(at::matmul(left, matrix).to(at::kFloat), own);
  }
  // As GroupedMatmul: the lower half of a row is stored 8 less than it is, which the bias puts back.
  const int64_t pieces = own.size(0);
  const int64_t length = matrix.size(0) / pieces;
  at::Tensor sum = bias->Widened()[group];
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const at::Tensor part = left.narrow(1, piece * length, length);
    const at::Tensor product = at::matmul(part.sub(8), matrix.narrow(0, piece * length, length)).to(at::kFloat);
    sum = at::add(sum, at::mul(product, own[piece]));
    if (offset) {
      const at::Tensor total = part.sum(1, true).to(at::kFloat);
      sum = at::add(sum, at::mul(total, offset->Widened()[group][piece]));
    }
  }
  return sum;
}

void GroupedMatmulFinalize::Run() const {
  const at::Tensor result = at::Tensor(out).zero_();
  if (shared) {
    result.narrow(0, shared_start, shared->size(0)).add_(shared->Widened(), shared_factor);
  }
  const at::Tensor rows = x;
  const at::Tensor places = at::Tensor(rows_of).to(at::kLong);
  const at::Tensor factors = at::mul(row_scale, weights).unsqueeze(-1);
  for (const GroupRange& range : GroupRanges(group_list, static_cast<GroupListType>(group_list_type), rows.size(0))) {
    const int64_t length = range.end - range.begin;
    const at::Tensor own = places.narrow(0, range.begin, length);
    if (length == 0) {
      continue;
    }
    if (own.lt(0).logical_or(own.ge(result.size(0))).any().item<bool>()) {
      throw Refusal(std::string("argument '") + rows_of.name() + "': expected numbers in [0, " +
                    std::to_string(result.size(0)) + "), found others");
    }
    const at::Tensor product = Product(rows.narrow(0, range.begin, length), range.group);
    result.index_add_(0, own, at::mul(product, factors.narrow(0, range.begin, length)));
  }
}

Plan PlanFinalize(const GroupedMatmulFinalize& given) {
  given.Require();
  const auto call = std::make_shared<GroupedMatmulFinalize>(given);
  return Plan([call] { call->Run(); });
}

void RequirePlain(const Tensor& weight, bool transposes_x, bool transposes_weight, int64_t dtype) {
  RequireDtype(weight, weight.is_nz() ? DtypeSet{ScalarType::Char, ScalarType::Int} : DtypeSet{ScalarType::Int});
  if (transposes_x || transposes_weight) {
    RefuseArgument("transposeX and transposeW", "false", "true");
  }
  if (dtype != 0) {
    RefuseArgument("dtype", "0 (float32)", std::to_string(dtype));
  }
}

}  // namespace

#define CANN_SIM_FINALIZE_ROWS                                                                                            \
  (Tensor, pertokenScale), (Tensor, groupList), (OptionalTensor, sharedInput), (Tensor, logit), (Tensor, rowIndex),       \
      (Int, dtype), (Float, sharedInputWeight), (Int, sharedInputOffset), (Bool, transposeX), (Bool, transposeW),         \
      (Int, groupListType)

#define CANN_SIM_FINALIZE_PLAN(OFFSET)                                                                                    \
  RequirePlain(x2, transposeX, transposeW, dtype);                                                                        \
  return PlanFinalize({x1, x2, scale, bias, OFFSET, pertokenScale, groupList, sharedInput, logit, rowIndex, sharedInputWeight, \
                   sharedInputOffset, groupListType, out})

// The versions for plain and for NZ matrices; the tuning changes no result.
#define CANN_SIM_GROUPED_FINALIZE(NAME, ...)                                                                              \
  CANN_SIM_OPERATOR(NAME, (Tensor, x1), (Tensor, x2), (Tensor, scale), (OptionalTensor, bias), (OptionalTensor, offset),  \
                    (OptionalTensor, antiquantScale), (OptionalTensor, antiquantOffset), CANN_SIM_FINALIZE_ROWS,          \
                    __VA_ARGS__ (Tensor, out)) {                                                                          \
    RefuseIfPresent(antiquantScale, "a scale of weights that are not quantised");                                         \
    RefuseIfPresent(antiquantOffset, "an offset of weights that are not quantised");                                      \
    CANN_SIM_FINALIZE_PLAN(offset);                                                                                       \
  }

CANN_SIM_GROUPED_FINALIZE(aclnnGroupedMatmulFinalizeRoutingV2)
CANN_SIM_GROUPED_FINALIZE(aclnnGroupedMatmulFinalizeRoutingV3, (OptionalIntArray, tuningConfig), )
CANN_SIM_GROUPED_FINALIZE(aclnnGroupedMatmulFinalizeRoutingWeightNzV2, (OptionalIntArray, tuningConfig), )

CANN_SIM_OPERATOR(aclnnGroupedMatmulFinalizeRoutingWeightNz, (Tensor, x1), (Tensor, x2), (Tensor, scale), (OptionalTensor, bias),
                  CANN_SIM_FINALIZE_ROWS, (Tensor, out)) {
  CANN_SIM_FINALIZE_PLAN(OptionalTensor());
}

}  // namespace cann_sim::operators
