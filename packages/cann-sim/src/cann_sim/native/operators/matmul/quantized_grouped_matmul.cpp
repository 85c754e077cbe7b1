// Grouped matrix products, plain, quantised and with quantised weights. Integer sums are exact, others float32, rounded once.

#include "quantized_grouped_matmul.h"

#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include <memory>

#include "../interface/operator.h"
#include "../quantization/quantization.h"

namespace cann_sim::operators {

using c10::ScalarType;

std::vector<GroupRange> GroupRanges(const at::Tensor& list, GroupListType type, int64_t size) {
  std::vector<GroupRange> ranges;
  int64_t begin = 0;
  for (int64_t index = 0; index < list.size(0); ++index) {
    int64_t group = index;
    int64_t end;
    if (type == GroupListType::kIndexedSizes) {
      group = list[index][0].item<int64_t>();
      end = begin + list[index][1].item<int64_t>();
    } else {
      const int64_t value = list[index].item<int64_t>();
      end = type == GroupListType::kTotals ? value : begin + value;
    }
    if (end < begin || end > size || group < 0) {
      throw Refusal("argument 'groupList': expected groups that never end before they begin, and end at most at " +
                    std::to_string(size) + ", found [" + std::to_string(begin) + ", " + std::to_string(end) + ")");
    }
    ranges.push_back({group, begin, end});
    begin = end;
  }
  return ranges;
}

void RequireGroupList(const Tensor& list, int64_t type) {
  constexpr int64_t kMostGroups = 1024;
  RequireDtype(list, {ScalarType::Long});
  if (type < 0 || type > 2) {
    RefuseArgument("groupListType", "0 (running totals), 1 (sizes) or 2 (group and size)", std::to_string(type));
  }
  RequireRank(list, type == 2 ? 2 : 1, type == 2 ? 2 : 1);
  if (list.size(0) > kMostGroups || (type == 2 && list.size(1) != 2)) {
    RefuseArgument(list.name(), type == 2 ? "shape [groups, 2] with at most 1024 groups" : "at most 1024 groups",
                   Describe(list.sizes()));
  }
}

at::Tensor OfGroup(const OptionalTensorList& list, int64_t group, int parameter_rank) {
  if (!list) {
    return at::Tensor();
  }
  if (list.size() > 1 || list[0].rank() == parameter_rank) {
    return list[list.size() > 1 ? static_cast<size_t>(group) : 0];
  }
  return at::Tensor(list[0])[group];
}

bool IsTransposedMatrix(const Tensor& matrix) {
  const size_t rank = static_cast<size_t>(matrix.rank());
  return rank >= 2 && matrix.strides()[rank - 2] == 1 && matrix.strides()[rank - 1] == matrix.size(-2);
}

at::Tensor IntegerMatrix(const at::Tensor& matrix, bool transposed) {
  if (matrix.scalar_type() != at::kInt) {
    return matrix.to(at::kFloat);
  }
  return transposed ? UnpackInt4(matrix.transpose(-1, -2)).transpose(-1, -2) : UnpackInt4(matrix);
}

at::Tensor ExactMatrix(const at::Tensor& matrix, bool transposed) { return IntegerMatrix(matrix, transposed).to(at::kDouble); }

namespace {

enum class SplitAxis : int64_t { kNone = -1, kRows = 0, kInner = 2 };

constexpr int64_t kSeparateOutputsBelow = 2;  // split items 0 and 1 have an output for each group

// One call of a grouped product; owned by its kernel.
struct GroupedMatmul {
  OptionalTensorList x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale;
  OptionalTensor group_list;
  int64_t split_item, group_type, group_list_type, act_type;
  OptionalTensorList y;

  void Require() const;
  void Run() const;

 private:
  bool integers() const { return x[0].dtype() == ScalarType::Char || x[0].dtype() == ScalarType::Int; }
  bool antiquantised() const { return !integers() && weight[0].dtype() != x[0].dtype(); }
  bool single_weight() const { return weight.size() == 1 && weight[0].rank() == 3; }
  int64_t groups() const { return single_weight() ? weight[0].size(0) : static_cast<int64_t>(weight.size()); }
  void RequireDtypes() const;
  void RequireQuantised() const;
  at::Tensor WeightOf(int64_t group) const;
  at::Tensor Antiquantised(int64_t group) const;
  at::Tensor ScaledProduct(const at::Tensor& rows, const at::Tensor& matrix, int64_t group) const;
  // The product of `rows` with the matrix of `group`, before rounding; `begin` is the first row.
  at::Tensor Product(const at::Tensor& rows, int64_t group, int64_t begin, int64_t piece) const;
};

void RefuseList(const OptionalTensorList& list, const std::string& expected) {
  if (list) {
    RefuseArgument(list.name(), expected, std::to_string(list.size()) + " tensors");
  }
}

void RequireEach(const OptionalTensorList& list, DtypeSet dtypes) {
  for (const Tensor& tensor : list) {
    RequireDtype(tensor, dtypes);
  }
}

void GroupedMatmul::RequireDtypes() const {
  RequireEach(x, kFloats | DtypeSet{ScalarType::Char, ScalarType::Int});
  for (const Tensor& tensor : x) {
    RequireSameDtype(tensor, x[0]);
  }
  for (const Tensor& tensor : weight) {
    RequireSameDtype(tensor, weight[0]);
  }
  RefuseList(offset, "none");
  if (integers()) {
    RequireQuantised();
    return;
  }
  RefuseList(scale, "none beside a floating point 'x'");
  RefuseList(per_token_scale, "none beside a floating point 'x'");
  for (const Tensor& result : y) {
    RequireSameDtype(result, x[0]);
  }
  RequireEach(bias, x[0].dtype() == ScalarType::Half ? DtypeSet{ScalarType::Half} : DtypeSet{ScalarType::Float});
  if (!antiquantised()) {
    RefuseList(antiquant_scale, "none where 'weight' is of the dtype of 'x'");
    return;
  }
  RequireDtype(x[0], kHalves);
  RequireDtype(weight[0], {ScalarType::Char, ScalarType::Int});
  if (!antiquant_scale || !antiquant_offset) {
    RefuseArgument(antiquant_scale ? antiquant_offset.name() : antiquant_scale.name(),
                   "a tensor beside a quantised 'weight'", "none");
  }
  RequireEach(antiquant_scale, {x[0].dtype()});
  RequireEach(antiquant_offset, {x[0].dtype()});
}

void GroupedMatmul::RequireQuantised() const {
  if (group_type == static_cast<int64_t>(SplitAxis::kInner)) {
    RefuseArgument("groupType", "-1 or 0 beside an integer 'x'", "2");
  }
  RefuseList(antiquant_scale, "none beside an integer 'x'");
  RefuseList(antiquant_offset, "none beside an integer 'x'");
  const bool four_bits = weight[0].dtype() == ScalarType::Int;
  RequireDtype(weight[0], {ScalarType::Char, ScalarType::Int});
  if (x[0].dtype() == ScalarType::Int && !four_bits) {
    RefuseArgument(weight.name(), "int4 beside an int4 'x'", "int8");
  }
  RequireDtype(y[0], {ScalarType::Char, ScalarType::Int, ScalarType::Half, ScalarType::BFloat16});
  RequireEach(per_token_scale, {ScalarType::Float});
  const DtypeSet packed{ScalarType::Long, ScalarType::UInt64};
  if (y[0].dtype() == ScalarType::Int) {
    RefuseList(scale, "none where the result is int32");
    return;
  }
  if (!scale) {
    RefuseArgument(scale.name(), "a tensor where the result is not int32", "none");
  }
  if (four_bits || y[0].dtype() == ScalarType::Char) {
    RequireEach(scale, packed);
  } else {
    RequireEach(scale, y[0].dtype() == ScalarType::BFloat16 ? DtypeSet{ScalarType::BFloat16, ScalarType::Float}
                                                             : DtypeSet{ScalarType::Float});
  }
  if (x[0].dtype() == ScalarType::Char && four_bits) {
    RequireEach(bias, {ScalarType::Float});
    if (!bias || !per_token_scale) {
      RefuseArgument(bias ? per_token_scale.name() : bias.name(), "a tensor beside an int4 'weight' and an int8 'x'", "none");
    }
  } else {
    RequireEach(bias, kFloats | DtypeSet{ScalarType::Int});
  }
}

void GroupedMatmul::Require() const {
  if (!x || !weight || !y) {
    RefuseArgument(!x ? x.name() : !weight ? weight.name() : y.name(), "at least one tensor", "none");
  }
  if (split_item < 0 || split_item > 3) {
    RefuseArgument("splitItem", "0 to 3", std::to_string(split_item));
  }
  if (group_type != -1 && group_type != 0 && group_type != 2) {
    RefuseArgument("groupType", "-1 (none), 0 (rows) or 2 (inner dimension)", std::to_string(group_type));
  }
  if (act_type < 0 || act_type > 5 || act_type == 3) {
    RefuseArgument("actType", "0 (none), 1 (relu), 2 (gelu tanh), 4 (fast gelu) or 5 (silu)", std::to_string(act_type));
  }
  if (act_type != 0 && !per_token_scale) {
    RefuseArgument("actType", "0 without scales for each row", std::to_string(act_type));
  }
  RequireDtypes();
  const bool separate = split_item < kSeparateOutputsBelow;
  if (group_type == -1 && (!separate || x.size() != weight.size() || group_list)) {
    RefuseArgument("groupType", "0 or 2 where there is a list of groups, or one output", "-1");
  }
  if (x.size() == 1 && groups() > 1 && !group_list) {
    RefuseArgument(group_list.name(), "a tensor where one 'x' serves several groups", "none");
  }
  if (group_list) {
    RequireGroupList(*group_list, group_list_type);
    if (group_type == 0 && group_list_type != 2 && group_list->size(0) != groups()) {
      RefuseArgument(group_list->name(), std::to_string(groups()) + " groups as 'weight'", Describe(group_list->sizes()));
    }
  }
  for (const OptionalTensorList* list : {&bias, &scale, &antiquant_scale, &antiquant_offset}) {
    if (*list && list->size() != weight.size()) {
      RefuseArgument(list->name(), std::to_string(weight.size()) + " tensors as 'weight'", std::to_string(list->size()));
    }
  }
  if (per_token_scale && per_token_scale.size() != x.size()) {
    RefuseArgument(per_token_scale.name(), std::to_string(x.size()) + " tensors as 'x'",
                   std::to_string(per_token_scale.size()));
  }
  for (size_t index = 0; index < weight.size(); ++index) {
    const Tensor& matrix = weight[index];
    RequireRank(matrix, 2, 3);
    const Tensor& left = x[x.size() == 1 ? 0 : index];
    const bool transposed = IsTransposedMatrix(matrix);
    const int64_t inner = matrix.size(-2) * (matrix.dtype() == ScalarType::Int && transposed ? 8 : 1);
    const int64_t width = left.size(-1) * (left.dtype() == ScalarType::Int ? 8 : 1);
    if (inner != width) {
      RefuseArgument(matrix.name(), std::to_string(width) + " rows, the width of 'x'", Describe(matrix.sizes()));
    }
  }
}

at::Tensor GroupedMatmul::WeightOf(int64_t group) const {
  return single_weight() ? at::Tensor(weight[0])[group]
                         : at::Tensor(weight[weight.size() > 1 ? static_cast<size_t>(group) : 0]);
}

// (weight + offset) * scale; [N] for each column, [G, N] for G pieces of the inner dimension. float16 is shifted and scaled in
// float16, bfloat16 in float32.
at::Tensor GroupedMatmul::Antiquantised(int64_t group) const {
  const ScalarType type = x[0].dtype() == ScalarType::Half ? ScalarType::Half : ScalarType::Float;
  const at::Tensor matrix = IntegerMatrix(WeightOf(group), IsTransposedMatrix(weight[0]));
  const auto own = [&](const OptionalTensorList& list) {
    return single_weight() ? at::Tensor(list[0])[group] : OfGroup(list, group, list[0].rank());
  };
  const at::Tensor scales = own(antiquant_scale);
  const at::Tensor shifts = own(antiquant_offset);
  const auto spread = [&](const at::Tensor& parameters) {
    const at::Tensor wide = parameters.to(type);
    return wide.dim() == 1 ? wide.unsqueeze(0) : wide.repeat_interleave(matrix.size(0) / wide.size(0), 0);
  };
  return matrix.to(type).add(spread(shifts)).mul(spread(scales)).to(x[0].dtype()).to(at::kFloat);
}

// Integer rows times integer columns times the scales of columns, or of pieces of the inner dimension.
at::Tensor GroupedMatmul::ScaledProduct(const at::Tensor& rows, const at::Tensor& matrix, int64_t group) const {
  const at::Tensor all = WidenScale(scale[scale.size() > 1 ? static_cast<size_t>(group) : 0]);
  const at::Tensor own = scale.size() > 1 || !single_weight() ? all : all[group];
  if (own.dim() < 2) {
    const at::Tensor integers = OfGroup(bias, group, 1);
    at::Tensor sum = at::matmul(rows, matrix);
    if (integers.defined() && integers.scalar_type() == at::kInt) {
      sum = at::add(sum, integers);
    }
    return at::mul(sum.to(at::kFloat), own);
  }
  const int64_t pieces = own.size(0);
  const int64_t length = matrix.size(0) / pieces;
  at::Tensor total;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const at::Tensor part = at::matmul(rows.narrow(1, piece * length, length), matrix.narrow(0, piece * length, length))
                                .to(at::kFloat).mul(own[piece]);
    total = total.defined() ? at::add(total, part) : part;
  }
  return total;
}

at::Tensor GroupedMatmul::Product(const at::Tensor& rows, int64_t group, int64_t begin, int64_t piece) const {
  const at::Tensor own_bias = OfGroup(bias, group, 1);
  if (!integers()) {
    const at::Tensor matrix = antiquantised() ? Antiquantised(group) : WeightOf(group).to(at::kFloat);
    const at::Tensor product = at::matmul(rows.to(at::kFloat), matrix);
    return own_bias.defined() ? at::add(product, own_bias.to(at::kFloat)) : product;
  }
  const at::Tensor matrix = ExactMatrix(WeightOf(group), IsTransposedMatrix(weight[0]));
  at::Tensor left = ExactMatrix(rows, false);
  if (y[0].dtype() == ScalarType::Int) {
    const at::Tensor sum = at::matmul(left, matrix);
    return own_bias.defined() ? at::add(sum, own_bias) : sum;
  }
  // int8 rows with an int4 matrix are cut into two int4, of which the lower is stored 8 less than it is; the bias puts the
  // difference back.
  const bool mixed = x[0].dtype() == ScalarType::Char && weight[0].dtype() == ScalarType::Int;
  if (mixed) {
    left = left.sub(8);
  }
  at::Tensor values = ScaledProduct(left, matrix, group);
  if (mixed) {
    values = at::add(values, own_bias);
  }
  if (per_token_scale) {
    const at::Tensor factors = at::Tensor(per_token_scale[static_cast<size_t>(piece)]).reshape({-1});
    values = at::mul(values, factors.narrow(0, begin, rows.size(0)).unsqueeze(1));
  }
  if (own_bias.defined() && own_bias.scalar_type() != at::kInt && !mixed) {
    values = at::add(values, own_bias.to(at::kFloat));
  }
  switch (act_type) {
    case 1: return at::relu(values);
    case 2: return at::gelu(values, "tanh");
    case 4: return at::mul(values, at::sigmoid(at::mul(values, 1.702)));
    case 5: return at::silu(values);
    default: return values;
  }
}

void StoreProduct(const at::Tensor& target, const at::Tensor& values) {
  target.copy_(target.scalar_type() == at::kChar ? values.nan_to_num(0.0).round().clamp(-128, 127) : values);
}

void GroupedMatmul::Run() const {
  const bool separate = split_item < kSeparateOutputsBelow;
  const auto type = static_cast<GroupListType>(group_list_type);
  if (group_type == static_cast<int64_t>(SplitAxis::kInner) && x.size() == 1 && group_list) {
    const at::Tensor left = x[0].Widened();
    for (const GroupRange& range : GroupRanges(*group_list, type, left.size(1))) {
      const int64_t length = range.end - range.begin;
      const at::Tensor right = weight.size() > 1 ? at::Tensor(weight[static_cast<size_t>(range.group)]).to(at::kFloat)
                                                  : weight[0].Widened().narrow(0, range.begin, length);
      const at::Tensor product = at::matmul(left.narrow(1, range.begin, length), right);
      separate ? at::Tensor(y[static_cast<size_t>(range.group)]).copy_(product) : at::Tensor(y[0])[range.group].copy_(product);
    }
    return;
  }
  if (x.size() == 1 && group_list) {
    const at::Tensor rows = x[0];
    for (const GroupRange& range : GroupRanges(*group_list, type, rows.size(0))) {
      if (range.group >= groups()) {
        throw Refusal("argument 'groupList': expected groups in [0, " + std::to_string(groups()) + "), found " +
                      std::to_string(range.group));
      }
      const int64_t length = range.end - range.begin;
      if (length == 0) {
        continue;
      }
      const at::Tensor product = Product(rows.narrow(0, range.begin, length), range.group, range.begin, 0);
      StoreProduct(separate ? at::Tensor(y[static_cast<size_t>(range.group)])
                            : at::Tensor(y[0]).narrow(0, range.begin, length),
                   product);
    }
    return;
  }
  int64_t begin = 0;
  for (size_t index = 0; index < x.size(); ++index) {
    const at::Tensor rows = x[index];
    const int64_t length = rows.numel() == 0 ? 0 : rows.size(0);
    const bool shared = y.size() == 1 && x.size() > 1;
    if (length != 0) {
      const at::Tensor flat = rows.reshape({-1, rows.size(-1)});
      const at::Tensor product = Product(flat, static_cast<int64_t>(index), 0, static_cast<int64_t>(index));
      const at::Tensor target = shared ? at::Tensor(y[0]).narrow(0, begin, length) : at::Tensor(y[index]);
      StoreProduct(target, product.view(target.sizes()));
    }
    begin += length;
  }
}

Plan PlanGrouped(const GroupedMatmul& call) {
  call.Require();
  auto owned = std::make_shared<GroupedMatmul>(call);
  return [owned] { owned->Run(); };
}

}  // namespace

#define CANN_SIM_GROUPED_TENSORS                                                                                      \
  (OptionalTensorList, x), (OptionalTensorList, weight), (OptionalTensorList, bias), (OptionalTensorList, scale),     \
      (OptionalTensorList, offset), (OptionalTensorList, antiquantScale), (OptionalTensorList, antiquantOffset)

#define CANN_SIM_GROUPED_OPTIONS                                                                                      \
  (OptionalTensorList, perTokenScale), (OptionalTensor, groupList), (OptionalTensorList, activationInput),            \
      (OptionalTensorList, activationQuantScale), (OptionalTensorList, activationQuantOffset), (Int, splitItem),      \
      (Int, groupType), (Int, groupListType), (Int, actType)

#define CANN_SIM_GROUPED_PLAN                                                                                        \
  RefuseList(activationInput, "none");                                                                                \
  RefuseList(activationQuantScale, "none");                                                                           \
  RefuseList(activationQuantOffset, "none");                                                                          \
  return PlanGrouped({x, weight, bias, scale, offset, antiquantScale, antiquantOffset, perTokenScale, groupList, splitItem, \
                   groupType, groupListType, actType, y})

CANN_SIM_OPERATOR(aclnnGroupedMatmulV4, CANN_SIM_GROUPED_TENSORS, CANN_SIM_GROUPED_OPTIONS, (OptionalTensorList, y),
                  (OptionalTensorList, activationFeatureOut), (OptionalTensorList, dynQuantScaleOut)) {
  CANN_SIM_GROUPED_PLAN;
}

CANN_SIM_OPERATOR(aclnnGroupedMatmulV5, CANN_SIM_GROUPED_TENSORS, CANN_SIM_GROUPED_OPTIONS,
                  (OptionalIntArray, tuningConfig), (OptionalTensorList, y), (OptionalTensorList, activationFeatureOut),
                  (OptionalTensorList, dynQuantScaleOut)) {
  CANN_SIM_GROUPED_PLAN;
}

// The right matrices are in the NZ format, which reads as the plain one.
CANN_SIM_OPERATOR(aclnnGroupedMatmulWeightNz, CANN_SIM_GROUPED_TENSORS, CANN_SIM_GROUPED_OPTIONS,
                  (OptionalIntArray, tuningConfig), (Int, quantPerGroupSize), (OptionalTensorList, y),
                  (OptionalTensorList, activationFeatureOut), (OptionalTensorList, dynQuantScaleOut)) {
  CANN_SIM_GROUPED_PLAN;
}

// With host integers as groups: running totals.
CANN_SIM_OPERATOR(aclnnGroupedMatmul, CANN_SIM_GROUPED_TENSORS, (OptionalIntArray, groupList), (Int, splitItem),
                  (OptionalTensorList, y)) {
  const bool listed = !groupList.values().empty();
  const GroupedMatmul call{x, weight, bias, scale, offset, antiquantScale, antiquantOffset, OptionalTensorList(nullptr, ""),
                           OptionalTensor(), splitItem, listed && x.size() == 1 ? 0 : -1, 0, 0, y};
  if (!x || !weight || !y) {
    RefuseArgument(x.name(), "at least one tensor in 'x', 'weight' and 'y'", "none");
  }
  if (!listed || x.size() > 1) {
    if (x.size() != weight.size()) {
      RefuseArgument(groupList.name(), "a list where one 'x' serves several groups", "none");
    }
    auto owned = std::make_shared<GroupedMatmul>(call);
    return [owned] { owned->Run(); };
  }
  // torch_npu's list is on the host; the kernel reads a tensor.
  const std::vector<int64_t> totals = groupList.values();
  auto owned = std::make_shared<GroupedMatmul>(call);
  auto list = std::make_shared<std::vector<int64_t>>(totals);
  aclTensor host;
  host.data = list->data();
  host.type = ACL_INT64;
  const auto count = static_cast<int64_t>(totals.size());
  host.sizes.Assign(&count, 1);
  host.strides = ContiguousStrides(host.sizes);
  owned->group_list = OptionalTensor(&host, "groupList");
  owned->Require();
  return [owned, list] { owned->Run(); };
}

}  // namespace cann_sim::operators
