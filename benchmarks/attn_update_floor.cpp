// The floor of bench_attn_update.py: the bare aclnn calls of FIA from C++, nothing around them.
//
// Two-phase calls as op-plugin makes them in an update, with the tensors of every layer described ahead and the
// lengths created again for each layer, as every launch must.

#include <dlfcn.h>

#include <cstdint>

namespace {

struct aclTensor;
struct aclTensorList;
struct aclIntArray;
struct aclOpExecutor;

constexpr int kFormatNd = 2;

using CreateTensor = aclTensor* (*)(const std::int64_t*, std::uint64_t, int, const std::int64_t*, std::int64_t, int,
                                    const std::int64_t*, std::uint64_t, void*);
using CreateTensorList = aclTensorList* (*)(const aclTensor* const*, std::uint64_t);
using CreateIntArray = aclIntArray* (*)(const std::int64_t*, std::uint64_t);
using DestroyIntArray = int (*)(const aclIntArray*);
using Plan = int (*)(const aclTensor*, const aclTensorList*, const aclTensorList*, const aclTensor*, const aclTensor*,
                     const aclIntArray*, const aclIntArray*, const aclTensor*, const aclTensor*, const aclTensor*,
                     const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*,
                     const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*, const aclTensor*,
                     const aclTensor*, const aclTensor*, const aclTensor*, const aclIntArray*, const aclTensor*,
                     const aclTensor*, const aclTensor*, std::int64_t, double, std::int64_t, std::int64_t, char*,
                     std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, std::int64_t,
                     std::int64_t, const aclTensor*, const aclTensor*, std::uint64_t*, aclOpExecutor**);
using Run = int (*)(void*, std::uint64_t, aclOpExecutor*, void*);

template <typename T>
T find(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : reinterpret_cast<T>(dlsym(handle, name));
}

struct Floor {
  CreateIntArray create_lengths;
  DestroyIntArray destroy_lengths;
  Plan plan;
  Run run;
  const aclTensor* query;
  const aclTensorList* key;
  const aclTensorList* value;
  const aclTensor* mask;
  const aclTensor* table;
  const aclTensor* out;
  const aclTensor* lse;
  void* workspace;
  std::uint64_t workspace_bytes;
};

}  // namespace

// Tensors: query, cache, mask, block table, out, softmax_lse; aclDataType and shape of each.
extern "C" Floor* floor_create(void* const* data, const int* types, const std::int64_t* const* shapes,
                               const std::uint64_t* ranks, void* workspace, std::uint64_t workspace_bytes) {
  const auto create = find<CreateTensor>("libnnopbase.so", "aclCreateTensor");
  const auto create_list = find<CreateTensorList>("libnnopbase.so", "aclCreateTensorList");
  auto* floor = new Floor{};
  floor->create_lengths = find<CreateIntArray>("libnnopbase.so", "aclCreateIntArray");
  floor->destroy_lengths = find<DestroyIntArray>("libnnopbase.so", "aclDestroyIntArray");
  floor->plan = find<Plan>("libopapi.so", "aclnnFusedInferAttentionScoreV3GetWorkspaceSize");
  floor->run = find<Run>("libopapi.so", "aclnnFusedInferAttentionScoreV3");
  if (create == nullptr || create_list == nullptr || floor->create_lengths == nullptr ||
      floor->destroy_lengths == nullptr || floor->plan == nullptr || floor->run == nullptr) {
    delete floor;
    return nullptr;
  }
  const aclTensor* tensors[7];
  const int source[7] = {0, 1, 1, 2, 3, 4, 5};
  for (int i = 0; i < 7; ++i) {
    const int from = source[i];
    std::int64_t strides[8];
    std::int64_t step = 1;
    for (auto axis = static_cast<std::int64_t>(ranks[from]) - 1; axis >= 0; --axis) {
      strides[axis] = step;
      step *= shapes[from][axis];
    }
    tensors[i] = create(shapes[from], ranks[from], types[from], strides, 0, kFormatNd, shapes[from], ranks[from],
                        data[from]);
  }
  floor->query = tensors[0];
  floor->key = create_list(&tensors[1], 1);
  floor->value = create_list(&tensors[2], 1);
  floor->mask = tensors[3];
  floor->table = tensors[4];
  floor->out = tensors[5];
  floor->lse = tensors[6];
  floor->workspace = workspace;
  floor->workspace_bytes = workspace_bytes;
  return floor;
}

extern "C" int floor_step(Floor* const* floors, int layers, const std::int64_t* query_lengths,
                          const std::int64_t* key_lengths, std::uint64_t count, std::int64_t heads,
                          std::int64_t kv_heads, double scale, std::int64_t block_size, void* stream) {
  char layout[] = "TND";
  constexpr std::int64_t kAll = 2147483647;
  for (int layer = 0; layer < layers; ++layer) {
    const Floor* floor = floors[layer];
    const auto* query = floor->create_lengths(query_lengths, count);
    const auto* key = floor->create_lengths(key_lengths, count);
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    int status = floor->plan(
        floor->query, floor->key, floor->value, nullptr, floor->mask, query, key, nullptr, nullptr, nullptr, nullptr,
        nullptr, nullptr, nullptr, floor->table, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
        nullptr, nullptr, nullptr, nullptr, heads, scale, kAll, kAll, layout, kv_heads, 3, 0, block_size, 0, false, 0,
        0, floor->out, floor->lse, &bytes, &executor);
    if (status == 0) {
      status = bytes > floor->workspace_bytes ? -1 : floor->run(floor->workspace, bytes, executor, stream);
    }
    floor->destroy_lengths(query);
    floor->destroy_lengths(key);
    if (status != 0) {
      return status;
    }
  }
  return 0;
}
