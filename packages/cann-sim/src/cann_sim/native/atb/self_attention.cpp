// SelfAttention: attention over whole sequences, packed, whose keys are packed too or in a paged cache, after a prefix.
// Lengths are CPU tensors, which become part of the launch.

#include "../operators/cost/attention_work.h"
#include "attention_mask.h"
#include "operation.h"
#include "operations.h"

namespace cann_sim::atb_library {

namespace {

using atb::infer::SelfAttentionParam;
using operators::OptionalTensor;
using operators::RefuseArgument;
using operators::Tensor;

void RequirePlainSelf(const SelfAttentionParam& parameters) {
  const auto require = [](const char* what, int value) {
    if (value != 0) {
      RefuseArgument(what, "0 (other values are not simulated)", std::to_string(value));
    }
  };
  require("quantType", parameters.quantType);
  require("clampType", parameters.clampType);
  require("scaleType", parameters.scaleType);
  require("inputLayout", parameters.inputLayout);
  require("cacheType", parameters.cacheType);
  require("windowSize", static_cast<int>(parameters.windowSize));
  require("mlaVHeadSize", static_cast<int>(parameters.mlaVHeadSize));
  require("batchRunStatusEnable", parameters.batchRunStatusEnable ? 1 : 0);
  if (parameters.calcType != SelfAttentionParam::kPagedEncoder && parameters.calcType != SelfAttentionParam::kPrefixEncoder) {
    RefuseArgument("calcType", "3 (encoder) or 4 (encoder behind a prefix)", std::to_string(parameters.calcType));
  }
}

MaskForm FormOf(int32_t mask_type) {
  switch (mask_type) {
    case SelfAttentionParam::kNoMask: return MaskForm::kNone;
    case SelfAttentionParam::kNorm: return MaskForm::kNorm;
    case SelfAttentionParam::kAlibi: return MaskForm::kAlibi;
    case SelfAttentionParam::kNormCompress: return MaskForm::kCausal;
    case SelfAttentionParam::kAlibiCompress: return MaskForm::kAlibiCompress;
    case SelfAttentionParam::kAlibiCompressSqrt: return MaskForm::kAlibiCompressSqrt;
    case SelfAttentionParam::kAlibiCompressLeftAlign: return MaskForm::kAlibiCompressLeftAlign;
    default: RefuseArgument("mask_type", "0 to 6 (a sliding window is not simulated)", std::to_string(mask_type));
  }
}

// What both kinds of encoder come down to.
struct Call {
  Tensor query, key, value, out;
  OptionalTensor block_table;
  AttentionMask mask;
  int64_t heads, kv_heads;
  double scale;
  std::vector<PackedSequence> sequences;

  at::Tensor Keys(const Tensor& tensor, const std::vector<int64_t>& starts, size_t index) const {
    const int64_t length = sequences[index].key_length;
    return block_table ? CachedRows(tensor, *block_table, kv_heads, index, length)
                       : PackedRows(tensor, kv_heads, starts[index], length);
  }

  void Run() const {
    std::vector<int64_t> starts(1, 0);
    for (const PackedSequence& sequence : sequences) {
      starts.push_back(starts.back() + sequence.key_length);
    }
    const at::Tensor rows = at::Tensor(out).view({out.size(0), heads, -1});
    AttendSequences(
        sequences, scale,
        [&](size_t index) {
          return PackedRows(query, heads, sequences[index].query_start, sequences[index].query_length);
        },
        [&](size_t index) { return Keys(key, starts, index); }, [&](size_t index) { return Keys(value, starts, index); },
        [&](size_t index) { return mask.Of(sequences[index], index); },
        [&](size_t index, const operators::AttentionResult& result) {
          rows.narrow(0, sequences[index].query_start, sequences[index].query_length).copy_(result.output);
        });
  }
};

operators::Plan MakePlan(Call call) {
  RequireHeads(call.heads, call.kv_heads);
  RequirePackedRows(call.query, call.heads);
  const bool paged = static_cast<bool>(call.block_table);
  int64_t keys = 0;
  for (const PackedSequence& sequence : call.sequences) {
    keys += sequence.key_length;
    if (call.mask.aligned_at_end && sequence.key_length < sequence.query_length) {
      RefuseArgument("seq_len", "at most the keys of the sequence, " + std::to_string(sequence.key_length),
                     std::to_string(sequence.query_length));
    }
  }
  for (const Tensor* tensor : {&call.key, &call.value}) {
    if (paged) {
      RequireCache(*tensor, call.query, call.kv_heads);
    } else {
      RequirePackedRows(*tensor, call.kv_heads);
      operators::RequireSameDtype(*tensor, call.query);
      if (tensor->size(0) < keys) {
        RefuseArgument(tensor->name(), std::to_string(keys) + " rows, the sum of the lengths", std::to_string(tensor->size(0)));
      }
    }
  }
  const auto dim = [&](const Tensor& tensor) {
    return paged ? CacheDim(tensor, call.kv_heads) : HeadDim(tensor, call.kv_heads);
  };
  if (dim(call.key) != HeadDim(call.query, call.heads)) {
    RefuseArgument(call.key.name(), "heads of " + std::to_string(HeadDim(call.query, call.heads)) + " as 'query'",
                   std::to_string(dim(call.key)));
  }
  if (paged) {
    RequireBlockTable(*call.block_table, call.sequences.size());
  }
  call.mask.Require(call.query, call.heads, static_cast<int64_t>(call.sequences.size()));
  operators::RequireSameDtype(call.out, call.query);
  operators::RequireContiguous(call.out);
  if (call.out.size(0) != call.query.size(0) || call.out.numel() != call.query.size(0) * call.heads * dim(call.value)) {
    RefuseArgument(call.out.name(), std::to_string(call.query.size(0)) + " rows of " + std::to_string(call.heads) +
                                        " heads of " + std::to_string(dim(call.value)),
                   operators::Describe(call.out.sizes()));
  }
  operators::Plan plan([call] { call.Run(); });
  if (KernelsAreTimed()) {
    const auto item = [](const Tensor& tensor) { return static_cast<double>(c10::elementSize(tensor.dtype())); };
    plan.duration = KernelTime(operators::WorkOfAttention(
        {.heads = call.heads,
         .kv_heads = call.kv_heads,
         .query_dims = dim(call.key),
         .value_dims = dim(call.value),
         .query_item = item(call.query),
         .cached_bytes = static_cast<double>(dim(call.key) + dim(call.value)) * item(call.key),
         .is_causal = call.mask.form == MaskForm::kCausal},
        call.sequences));
  }
  return plan;
}

}  // namespace

operators::Plan MakePlan(const SelfAttentionParam& parameters, const Arguments& tensors) {
  RequirePlainSelf(parameters);
  const bool paged = parameters.calcType == SelfAttentionParam::kPrefixEncoder;
  const MaskForm form = FormOf(parameters.maskType);
  const size_t mask = paged ? 4 : 3;
  const size_t lengths = mask + (form == MaskForm::kNone ? 0 : 1);
  const size_t slopes = lengths + (paged ? 2 : 1);
  const bool has_slopes = form >= MaskForm::kAlibiCompress;
  tensors.RequireCounts(slopes + (has_slopes ? 1 : 0), 1);
  Call call;
  call.query = tensors.Input(0, "query");
  call.key = tensors.Input(1, "key");
  call.value = tensors.Input(2, "value");
  call.out = tensors.Output(0, "out");
  call.heads = parameters.headNum;
  call.kv_heads = parameters.kvHeadNum == 0 ? call.heads : parameters.kvHeadNum;
  call.scale = parameters.qkScale;
  call.mask = {form, form == MaskForm::kNone ? OptionalTensor(nullptr, "mask") : tensors.OptionalInput(mask, "mask"),
               has_slopes ? tensors.OptionalInput(slopes, "slopes") : OptionalTensor(nullptr, "slopes"), paged};
  if (form == MaskForm::kCausal && !call.mask.mask) {
    RefuseArgument("mask", "a mask for mask_type 3", "none");
  }
  const std::vector<int64_t> query_lengths = tensors.HostInput(lengths, "seq_len");
  if (paged) {
    call.block_table = tensors.Input(3, "block_table");
  }
  call.sequences = PackSequences(query_lengths, paged ? tensors.HostInput(lengths + 1, "context_lens") : query_lengths,
                                 call.query.size(0), "seq_len", "context_lens");
  return MakePlan(std::move(call));
}

using operators::Float;
using operators::Int;
using operators::Int32;

CANN_SIM_ATB_FUNCTION(AtbSelfAttentionPrefixEncoder, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, block_tables),
                      (OptionalTensor, mask), (Tensor, seqlen), (Tensor, kv_seqlen), (OptionalTensor, slopes),
                      (Int32, mask_type), (Int, q_headnum), (Int, kv_headnum), (Float, qk_scale), (Tensor, output)) {
  constexpr int32_t kCausalWithoutMask = 9;
  const MaskForm form = mask_type == kCausalWithoutMask ? MaskForm::kCausal : FormOf(mask_type);
  const auto queries = HostValues(seqlen);
  Call call;
  call.query = query;
  call.key = key;
  call.value = value;
  call.out = output;
  call.block_table = block_tables;
  call.mask = {form, mask, slopes, true};
  call.heads = q_headnum;
  call.kv_heads = kv_headnum == 0 ? q_headnum : kv_headnum;
  call.scale = qk_scale;
  call.sequences = PackSequences(queries, HostValues(kv_seqlen), query.size(0), "seqlen", "kv_seqlen");
  return MakePlan(std::move(call));
}

}  // namespace cann_sim::atb_library
