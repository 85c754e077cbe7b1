// Joining attention over several parts of the keys into attention over all of them. Computed in float32, rounded once.

#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include <limits>

#include "../interface/operator.h"
#include "../interface/optional_tensor_list.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr double kUnseen = std::numeric_limits<double>::infinity();

}  // namespace

// out = sum of localOut[i] * exp(lse[i] - all), all = log of the sum of exp(lse[i]). +inf, which attention gives a row without
// keys, counts as -inf.
CANN_SIM_OPERATOR(aclnnAttentionUpdate, (OptionalTensorList, lse), (OptionalTensorList, localOut), (Int, updateType),
                  (Tensor, out), (OptionalTensor, lseOut)) {
  if (!lse || lse.size() != localOut.size()) {
    RefuseArgument(localOut.name(), "as many tensors as in 'lse', at least one",
                   std::to_string(lse.size()) + " and " + std::to_string(localOut.size()));
  }
  if (updateType != 0 && updateType != 1) {
    RefuseArgument(updateType.name(), "0 or 1 (with the joint lse)", std::to_string(updateType));
  }
  for (size_t part = 0; part < lse.size(); ++part) {
    RequireDtype(lse[part], {ScalarType::Float});
    RequireRank(lse[part], 1, 1);
    RequireShape(lse[part], lse[0].sizes());
    RequireDtype(localOut[part], kFloats);
    RequireSameDtype(localOut[part], localOut[0]);
    RequireRank(localOut[part], 2, 2);
    RequireShape(localOut[part], {lse[0].size(0), localOut[0].size(1)});
  }
  RequireSameDtype(out, localOut[0]);
  RequireShape(out, localOut[0].sizes());
  const bool wants_lse = updateType == 1 && lseOut;
  if (wants_lse) {
    RequireDtype(*lseOut, {ScalarType::Float});
    RequireShape(*lseOut, lse[0].sizes());
  }
  return [=] {
    std::vector<at::Tensor> logarithms;
    std::vector<at::Tensor> outputs;
    for (size_t part = 0; part < lse.size(); ++part) {
      const at::Tensor own = lse[part];
      logarithms.push_back(own.masked_fill(own.eq(kUnseen), -kUnseen));
      outputs.push_back(localOut[part].Widened());
    }
    const at::Tensor all = at::stack(logarithms).logsumexp({0});
    const at::Tensor weights = at::exp(at::stack(logarithms).sub(all.masked_fill(all.eq(-kUnseen), 0.0)));
    out.Store(at::mul(at::stack(outputs), weights.unsqueeze(-1)).sum({0}));
    if (wants_lse) {
      lseOut->Store(all);
    }
  };
}

// Joins two parts of attention by their statistics: the largest score and the sum of exp(score - largest), eight equal copies
// of each. The statistics of a packed layout, [T, N, 8], are laid out like the queries, or, sequence by sequence, [N, S, 8].
CANN_SIM_OPERATOR(aclnnRingAttentionUpdateV2, (Tensor, prevAttnOut), (Tensor, prevSoftmaxMax), (Tensor, prevSoftmaxSum),
                  (Tensor, curAttnOut), (Tensor, curSoftmaxMax), (Tensor, curSoftmaxSum), (OptionalTensor, actualSeqQlen),
                  (Text, inputLayout), (OptionalText, inputSoftmaxLayout), (Tensor, attnOut), (Tensor, softmaxMax),
                  (Tensor, softmaxSum)) {
  const bool packed = inputLayout.value() == "TND";
  if (!packed && inputLayout.value() != "SBH") {
    RefuseArgument(inputLayout.name(), "SBH or TND", inputLayout.value());
  }
  const bool as_queries = inputSoftmaxLayout.value() == "TND";
  RequireDtype(prevAttnOut, kFloats);
  RequireRank(prevAttnOut, 3, 3);
  for (const Tensor& output : {curAttnOut, attnOut}) {
    RequireSameDtype(output, prevAttnOut);
    RequireShape(output, prevAttnOut.sizes());
  }
  RequireRank(prevSoftmaxMax, packed ? 3 : 4, packed ? 3 : 4);
  const int64_t heads = prevSoftmaxMax.size(1);
  for (const Tensor& statistic : {prevSoftmaxMax, prevSoftmaxSum, curSoftmaxMax, curSoftmaxSum, softmaxMax, softmaxSum}) {
    RequireDtype(statistic, {ScalarType::Float});
    RequireShape(statistic, packed ? std::vector<int64_t>{prevAttnOut.size(0), prevAttnOut.size(1), 8}
                                   : std::vector<int64_t>{prevAttnOut.size(1), heads, prevAttnOut.size(0), 8});
  }
  if (packed) {
    if (!actualSeqQlen) {
      RefuseArgument(actualSeqQlen.name(), "the ends of the sequences in the layout TND", "none");
    }
    RequireDtype(*actualSeqQlen, {ScalarType::Long});
  } else if (heads == 0 || prevAttnOut.size(2) % heads != 0) {
    RefuseArgument(prevAttnOut.name(), std::to_string(heads) + " heads", Describe(prevAttnOut.sizes()));
  }
  return [=] {
    const at::Tensor before = prevSoftmaxMax.Widened();
    const at::Tensor now = curSoftmaxMax.Widened();
    const at::Tensor largest = at::maximum(before, now);
    const at::Tensor before_sum = before.sub(largest).exp_().mul_(prevSoftmaxSum.Widened());
    const at::Tensor now_sum = now.sub(largest).exp_().mul_(curSoftmaxSum.Widened());
    const at::Tensor sum = before_sum.add(now_sum);
    // The share of each row, [rows of the output, heads, 1].
    const auto share = [&](const at::Tensor& part) {
      const at::Tensor all = part.div(sum);
      if (!packed) {
        return all.select(-1, 0).permute({2, 0, 1}).unsqueeze(-1);  // [S, B, N, 1]
      }
      if (as_queries) {
        return all.select(-1, 0).unsqueeze(-1);
      }
      const at::Tensor rows = at::Tensor(all.new_zeros({all.size(0), all.size(1)}));
      int64_t begin = 0;
      const at::Tensor ends = at::Tensor(*actualSeqQlen).contiguous();
      for (int64_t index = 0; index < ends.numel(); ++index) {
        const int64_t length = ends.data_ptr<int64_t>()[index] - begin;
        if (length < 0 || begin + length > all.size(0)) {
          throw Refusal("argument 'actualSeqQlen': expected ends that never fall, at most " + std::to_string(all.size(0)));
        }
        const at::Tensor own = all.narrow(0, begin, length).reshape({all.size(1), length, all.size(2)});
        rows.narrow(0, begin, length).copy_(own.select(2, 0).transpose(0, 1));
        begin += length;
      }
      return rows.unsqueeze(-1);
    };
    const auto by_head = [&](const Tensor& output) {
      const at::Tensor wide = output.Widened();
      return packed ? wide : wide.unflatten(2, {heads, -1});
    };
    const at::Tensor joined = by_head(prevAttnOut).mul(share(before_sum)).add(by_head(curAttnOut).mul(share(now_sum)));
    attnOut.Store(joined.reshape(attnOut.sizes()));
    softmaxMax.Store(largest);
    softmaxSum.Store(sum);
  };
}

}  // namespace cann_sim::operators
