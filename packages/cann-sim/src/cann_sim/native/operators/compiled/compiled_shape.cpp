// Operators of the older road that move values and do not compute.

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

// StrideAdd counts channels in blocks of as many (the C0 of the format NC1HWC0).
constexpr int64_t kChannelBlock = 16;

// `count` blocks of channels from block `first` on, with zeros after the last channel.
at::Tensor ChannelBlocks(const at::Tensor& x, int64_t first, int64_t count) {
  const int64_t wanted = count * kChannelBlock;
  const int64_t begin = std::min(first * kChannelBlock, x.size(1));
  const int64_t there = std::min(wanted, x.size(1) - begin);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] = wanted;
  at::Tensor blocks = at::zeros(sizes, x.options());
  blocks.narrow(1, 0, there).copy_(x.narrow(1, begin, there));
  return blocks;
}

}  // namespace

CANN_SIM_COMPILED_OPERATOR(Transpose) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  const std::vector<int64_t> order = call.HostIntegers(1, "perm");
  return [=] { out.Store(at::Tensor(x).permute(order)); };
}

CANN_SIM_COMPILED_OPERATOR(BroadcastTo) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireBroadcast(out, {&x, &out});
  return [=] { out.Store(at::Tensor(x).expand(out.sizes())); };
}

// Zeros around the values; a pair of paddings for each dimension, the first first.
CANN_SIM_COMPILED_OPERATOR(Pad) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  const std::vector<int64_t> pairs = call.HostIntegers(1, "paddings");
  if (pairs.size() != 2 * x.sizes().size()) {
    RefuseArgument("paddings", "two numbers for each of " + std::to_string(x.rank()) + " dimensions", Describe(pairs));
  }
  std::vector<int64_t> from_last;
  for (size_t dim = x.sizes().size(); dim-- > 0;) {
    from_last.insert(from_last.end(), {pairs[2 * dim], pairs[2 * dim + 1]});
  }
  return [=] { out.Store(at::constant_pad_nd(at::Tensor(x), from_last, 0)); };
}

CANN_SIM_COMPILED_OPERATOR(Slice) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  const std::vector<int64_t> offsets = call.HostIntegers(1, "offsets");
  const std::vector<int64_t> sizes = call.HostIntegers(2, "size");
  RequireShape(out, sizes);
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (offsets[dim] < 0 || offsets[dim] + sizes[dim] > x.size(static_cast<int>(dim))) {
      RefuseArgument("offsets", "a part of " + Describe(x.sizes()), Describe(offsets) + " and " + Describe(sizes));
    }
  }
  return [=] {
    at::Tensor part = x;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      part = part.narrow(static_cast<int64_t>(dim), offsets[dim], sizes[dim]);
    }
    out.Store(part);
  };
}

CANN_SIM_COMPILED_OPERATOR(ConfusionTransposeD) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  const auto order = call.Attribute<std::vector<int64_t>>("perm");
  const auto shape = call.Attribute<std::vector<int64_t>>("shape");
  const bool transpose_first = call.Attribute<bool>("transpose_first");
  return [=] {
    const at::Tensor values = x;
    out.Store(transpose_first ? values.permute(order).reshape(shape) : values.reshape(shape).permute(order));
  };
}

// Some blocks of channels of one tensor plus as many of the other.
CANN_SIM_COMPILED_OPERATOR(StrideAdd) {
  const Tensor x1 = call.Input(0, "x1"), x2 = call.Input(1, "x2"), out = call.Output(0, "y");
  const auto first = call.Attribute<int64_t>("x1_c1_offset"), second = call.Attribute<int64_t>("x2_c1_offset");
  const auto count = call.Attribute<int64_t>("c1_len");
  RequireDtype(x1, kFloats);
  RequireSameDtype(x2, x1);
  return [=] { out.Store(ChannelBlocks(x1.Widened(), first, count).add(ChannelBlocks(x2.Widened(), second, count))); };
}

// value[i] at the places start[i, j] to end[i, j] of an axis: of row j where the axis is the last of several, in all rows
// otherwise.
CANN_SIM_COMPILED_OPERATOR(MaskedFillRange) {
  const Tensor x = call.Input(0, "x"), start = call.Input(1, "start"), end = call.Input(2, "end");
  const Tensor value = call.Input(3, "value"), out = call.Output(0, "y");
  RequireRank(x, 1, 3);
  RequireRank(start, 2, 2);
  RequireShape(end, start.sizes());
  const int64_t axis = WrapDim(call.Attribute<int64_t>("axis"), x.rank(), "axis");
  const bool by_row = axis > 0 && axis == x.rank() - 1;
  return [=] {
    at::Tensor filled = at::Tensor(x).clone();
    const at::Tensor from = at::Tensor(start).to(at::kLong), to = at::Tensor(end).to(at::kLong);
    const at::Tensor values = value;
    for (int64_t range = 0; range < from.size(0); ++range) {
      for (int64_t row = 0; row < from.size(1); ++row) {
        const at::Tensor part = by_row ? filled.select(0, row) : filled;
        const int64_t begin = from[range][row].item<int64_t>();
        const int64_t length = std::max<int64_t>(to[range][row].item<int64_t>() - begin, 0);
        part.narrow(by_row ? axis - 1 : axis, begin, length).fill_(values[range]);
      }
    }
    out.Store(filled);
  };
}

}  // namespace cann_sim::operators
