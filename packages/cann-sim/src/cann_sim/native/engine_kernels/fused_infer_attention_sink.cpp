// `_C_ascend::npu_fused_infer_attention_score_v2_sink` of vllm-ascend and the operator that makes its metadata, in the device's
// place: FusedInferAttentionScore whose lengths are device memory, read when the kernel runs.
//
// The values are those of the simulated aclnnFusedInferAttentionScoreV4, which is prepared with the lengths of each run. The
// metadata is 1024 int32: ten words for each of 36 cube cores, three for each of 72 vector cores, ten for all, and at the end
// the simulator's seal. Attention refuses metadata whose seal is not that of its own lengths and attributes.
#include <acl/acl_base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "../runtime/launch.h"
#include "metadata_seal.h"

struct aclTensor;
struct aclTensorList;
struct aclIntArray;
struct aclOpExecutor;

extern "C" {
aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, aclDataType type, const int64_t* strides,
                           int64_t offset, aclFormat format, const int64_t* storage_dims, uint64_t storage_dims_num,
                           void* data);
int aclDestroyTensor(const aclTensor* tensor);
aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t size);
int aclDestroyTensorList(const aclTensorList* list);
aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t size);
int aclDestroyIntArray(const aclIntArray* array);
int aclDestroyAclOpExecutor(aclOpExecutor* executor);
const char* aclGetRecentErrMsg();

// As operators/fused_infer_attention/attention_fused_infer.cpp defines it.
int aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* position_shift,
    const aclTensor* mask, const aclIntArray* query_lengths, const aclIntArray* key_lengths, const aclTensor* dequant_scale_1,
    const aclTensor* quant_scale_1, const aclTensor* dequant_scale_2, const aclTensor* quant_scale_2,
    const aclTensor* quant_offset_2, const aclTensor* antiquant_scale, const aclTensor* antiquant_offset,
    const aclTensor* block_table, const aclTensor* query_padding, const aclTensor* key_padding, const aclTensor* key_scale,
    const aclTensor* key_offset, const aclTensor* value_scale, const aclTensor* value_offset, const aclTensor* key_prefix,
    const aclTensor* value_prefix, const aclIntArray* prefix_length, const aclTensor* query_rope, const aclTensor* key_rope,
    const aclTensor* key_rope_scale, const aclTensor* query_scale, const aclTensor* learnable_sink, int64_t heads, double scale,
    int64_t pre_tokens, int64_t next_tokens, const char* layout, int64_t kv_heads, int64_t sparse_mode, int64_t inner_precise,
    int64_t block_size, int64_t antiquant_mode, bool wants_log_sum_exp, int64_t key_mode, int64_t value_mode,
    int64_t query_mode, const aclTensor* output, const aclTensor* log_sum_exp, uint64_t* workspace_size,
    aclOpExecutor** executor);
// operators/interface/executor.cpp
void cann_sim_run_prepared(aclOpExecutor* executor);
}

namespace {

constexpr const char* kSinkMetadataOperator = "_C_ascend::_npu_fused_infer_attention_score_v2_sink_metadata";
constexpr const char* kSinkAttentionOperator = "_C_ascend::npu_fused_infer_attention_score_v2_sink";
constexpr const char* kSinkLayouts[] = {"TND", "TND_NTD"};

namespace sink_words {
constexpr int64_t kOfCubeCore = 10;
enum CubeWord : int64_t { kIsEnabled = 0, kEndOfHeads = 1, kEndOfRows = 2 };
constexpr int64_t kUsedCores = 36 * kOfCubeCore + 72 * 3 + 4;
}  // namespace sink_words

// What both calls are given; the fields are those of engine_kernels/vllm_ascend_fused_infer.py.
struct SinkLengths {
  const int64_t* query_ends;  // [sequences]
  const int64_t* keys;        // [sequences]
  int64_t sequences;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t rope_dim;
  int64_t sparse_mode;
  int64_t pre_tokens;
  int64_t next_tokens;
  int64_t layout;  // index of kSinkLayouts
  int64_t block_size;

  int64_t rows(int64_t sequence) const { return query_ends[sequence] - (sequence == 0 ? 0 : query_ends[sequence - 1]); }
};

// A dense tensor; null memory where there is none.
struct SinkTensor {
  void* memory;
  int64_t type;  // an aclDataType
  int64_t item;  // bytes of an element
  int64_t rank;
  int64_t sizes[4];

  size_t bytes() const {
    int64_t count = item;
    for (int64_t dim = 0; dim < rank; ++dim) {
      count *= sizes[dim];
    }
    return static_cast<size_t>(count);
  }
};

struct SinkCall {
  SinkLengths lengths;
  SinkTensor query, key, value, query_rope, key_rope, mask, block_table, output, log_sum_exp;
  const int32_t* metadata;
  double scale;
  int64_t wants_log_sum_exp;
};

cann_sim::MetadataSeal SealOfSink(const SinkLengths& lengths) {
  const int64_t bytes = lengths.sequences * 8;
  return {cann_sim::Digest({{lengths.query_ends, bytes}, {lengths.keys, bytes}}),
          cann_sim::Digest({{&lengths.sequences, static_cast<int64_t>(sizeof lengths - offsetof(SinkLengths, sequences))}})};
}

void CheckSinkLengths(const SinkLengths& lengths) {
  const auto refuse = [](const char* name, int64_t place, int64_t value, const char* expected) {
    throw std::runtime_error(std::string(kSinkMetadataOperator) + ": " + name + "[" + std::to_string(place) + "] is " +
                             std::to_string(value) + ", expected " + expected);
  };
  for (int64_t i = 0; i < lengths.sequences; ++i) {
    if (lengths.rows(i) < 0) {
      refuse("actual_seq_lengths", i, lengths.query_ends[i], i == 0 ? "0 or more" : "no less than the one before");
    }
    if (lengths.keys[i] < 0) {
      refuse("actual_seq_lengths_kv", i, lengths.keys[i], "0 or more");
    }
  }
}

// Gives each core heads and rows of about the same number of keys, in order, and says where they end: at a row of a head, or
// at the first row of the next one.
void SplitSink(const SinkLengths& lengths, int64_t cores, cann_sim::Metadata& metadata) {
  int64_t total = 0, done = 0, used = 0;
  for (int64_t sequence = 0; sequence < lengths.sequences; ++sequence) {
    total += lengths.kv_heads * lengths.rows(sequence) * (1 + lengths.keys[sequence]);
  }
  for (int64_t sequence = 0; sequence < lengths.sequences; ++sequence) {
    for (int64_t head = 0; head < lengths.kv_heads; ++head) {
      for (int64_t row = 0; row < lengths.rows(sequence); ++row) {
        int32_t* words = &metadata[done * cores / total * sink_words::kOfCubeCore];
        used += words[sink_words::kIsEnabled] == 0;
        words[sink_words::kIsEnabled] = 1;
        const bool is_last = row + 1 == lengths.rows(sequence);
        words[sink_words::kEndOfHeads] = static_cast<int32_t>(sequence * lengths.kv_heads + head + is_last);
        words[sink_words::kEndOfRows] = static_cast<int32_t>(is_last ? 0 : row + 1);
        done += 1 + lengths.keys[sequence];
      }
    }
  }
  metadata[sink_words::kUsedCores] = static_cast<int32_t>(used);
}

void MakeSinkMetadata(const SinkLengths& lengths, int64_t cores, int32_t* output) {
  CheckSinkLengths(lengths);
  cann_sim::Metadata metadata = {};
  SplitSink(lengths, cores, metadata);
  cann_sim::SealMetadata(SealOfSink(lengths), metadata);
  std::memcpy(output, metadata.data(), sizeof metadata);
}

// The objects of the aclnn interface that one call needs.
class AclArguments {
 public:
  AclArguments() = default;
  AclArguments(const AclArguments&) = delete;
  AclArguments& operator=(const AclArguments&) = delete;
  ~AclArguments() {
    std::for_each(tensors_.begin(), tensors_.end(), aclDestroyTensor);
    std::for_each(lists_.begin(), lists_.end(), aclDestroyTensorList);
    std::for_each(arrays_.begin(), arrays_.end(), aclDestroyIntArray);
  }

  const aclTensor* Add(const SinkTensor& tensor) {
    if (tensor.memory != nullptr) {
      tensors_.push_back(Create(tensor));
    }
    return tensor.memory == nullptr ? nullptr : tensors_.back();
  }
  const aclTensorList* AddList(const SinkTensor& tensor) {
    const aclTensor* const only = Create(tensor);  // the list destroys it
    return lists_.emplace_back(aclCreateTensorList(&only, 1));
  }
  const aclIntArray* Add(const std::vector<int64_t>& values) {
    return arrays_.emplace_back(aclCreateIntArray(values.data(), values.size()));
  }

 private:
  static aclTensor* Create(const SinkTensor& tensor) {
    const auto rank = static_cast<size_t>(tensor.rank);
    std::vector<int64_t> strides(rank, 1);
    for (size_t dim = rank; dim-- > 1;) {
      strides[dim - 1] = strides[dim] * tensor.sizes[dim];
    }
    return aclCreateTensor(tensor.sizes, rank, static_cast<aclDataType>(tensor.type), strides.data(), 0, ACL_FORMAT_ND,
                           tensor.sizes, rank, tensor.memory);
  }

  std::vector<const aclTensor*> tensors_;
  std::vector<const aclTensorList*> lists_;
  std::vector<const aclIntArray*> arrays_;
};

// Prepares attention for lengths that are known; answers with a code whose text aclGetRecentErrMsg has.
int PrepareSink(const SinkCall& call, const std::vector<int64_t>& query_ends, const std::vector<int64_t>& keys,
                aclOpExecutor** executor) {
  AclArguments made;
  const SinkLengths& lengths = call.lengths;
  uint64_t workspace_size = 0;
  return aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
      made.Add(call.query), made.AddList(call.key), made.AddList(call.value), nullptr, made.Add(call.mask), made.Add(query_ends),
      made.Add(keys), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, made.Add(call.block_table), nullptr, nullptr,
      nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, made.Add(call.query_rope), made.Add(call.key_rope), nullptr,
      nullptr, nullptr, lengths.heads, call.scale, lengths.pre_tokens, lengths.next_tokens, kSinkLayouts[lengths.layout],
      lengths.kv_heads, lengths.sparse_mode, 0, lengths.block_size, 0, call.wants_log_sum_exp != 0, 0, 0, 0,
      made.Add(call.output), made.Add(call.log_sum_exp), &workspace_size, executor);
}

void AttendSink(const SinkCall& call) {
  const SinkLengths& lengths = call.lengths;
  cann_sim::Metadata metadata;
  std::memcpy(metadata.data(), call.metadata, sizeof metadata);
  cann_sim::RequireSeal(SealOfSink(lengths), metadata,
                        {kSinkAttentionOperator, "_npu_fused_infer_attention_score_v2_sink_metadata",
                         "sequences, heads, head dimensions, sparse_mode, pre_tokens, next_tokens, input_layout or block_size"});
  aclOpExecutor* executor = nullptr;
  if (PrepareSink(call, {lengths.query_ends, lengths.query_ends + lengths.sequences},
                  {lengths.keys, lengths.keys + lengths.sequences}, &executor) != 0) {
    throw std::runtime_error(std::string(kSinkAttentionOperator) + ": " + aclGetRecentErrMsg());
  }
  cann_sim_run_prepared(executor);
}

std::vector<cann_sim::MemoryAccess> TouchedLengthsOfSink(const SinkLengths& lengths) {
  const size_t bytes = static_cast<size_t>(lengths.sequences) * sizeof(int64_t);
  return {cann_sim::MemoryAccess::Bytes("actual_seq_qlen", lengths.query_ends, bytes, false),
          cann_sim::MemoryAccess::Bytes("actual_seq_kvlen", lengths.keys, bytes, false)};
}

std::vector<cann_sim::MemoryAccess> TouchedMemoryOfSink(const SinkCall& call) {
  std::vector<cann_sim::MemoryAccess> touched = TouchedLengthsOfSink(call.lengths);
  touched.push_back(cann_sim::MemoryAccess::Bytes("meta_data", call.metadata, cann_sim::kMetadataWords * sizeof(int32_t), false));
  const auto touch = [&](const char* name, const SinkTensor& tensor, bool writes = false) {
    if (tensor.memory != nullptr && tensor.bytes() != 0) {
      touched.push_back(cann_sim::MemoryAccess::Bytes(name, tensor.memory, tensor.bytes(), writes));
    }
  };
  touch("query", call.query);
  touch("key", call.key);
  touch("value", call.value);
  touch("query_rope", call.query_rope);
  touch("key_rope", call.key_rope);
  touch("atten_mask", call.mask);
  touch("block_table", call.block_table);
  touch("attention_out", call.output, true);
  touch("softmax_lse", call.log_sum_exp, true);
  return touched;
}

}  // namespace

// Both answer as a launch of CANN does: 0, or a code whose text aclGetRecentErrMsg has.
extern "C" CANN_SIM_EXPORT int cann_sim_fused_infer_attention_sink_metadata(void* stream, const SinkLengths* given, int64_t cores,
                                                                            int32_t* output) {
  const SinkLengths lengths = *given;
  std::vector<cann_sim::MemoryAccess> touched = TouchedLengthsOfSink(lengths);
  touched.push_back(cann_sim::MemoryAccess::Bytes("meta_data", output, cann_sim::kMetadataWords * sizeof(int32_t), true));
  return cann_sim::LaunchKernel(stream, {kSinkMetadataOperator, [=] { MakeSinkMetadata(lengths, cores, output); }, 0, touched});
}

extern "C" CANN_SIM_EXPORT int cann_sim_fused_infer_attention_sink(void* stream, const SinkCall* given) {
  const SinkCall call = *given;
  // What no length decides is refused here, as the device's tiling does on the host.
  const std::vector<int64_t> none(static_cast<size_t>(call.lengths.sequences), 0);
  aclOpExecutor* executor = nullptr;
  const int status = PrepareSink(call, none, none, &executor);
  if (status != 0) {
    return status;
  }
  aclDestroyAclOpExecutor(executor);
  return cann_sim::LaunchKernel(stream, {kSinkAttentionOperator, [=] { AttendSink(call); }, 0, TouchedMemoryOfSink(call)});
}
