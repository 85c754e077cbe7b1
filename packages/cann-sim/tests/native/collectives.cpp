// Collectives between two devices of one process, each driven by a host thread of its own; messages, and a rank that fails.

#include <numeric>

#include <third_party/hccl/inc/hccl/hccl.h>

#include "scenario.h"

namespace {

constexpr uint64_t kCount = 300'000;  // more than a window has
constexpr int kTurns = 8;

// What one rank does; both are at the same collectives.
void Exchange(int rank, HcclComm comm, aclrtStream stream) {
  auto* const own = scenario::DeviceMemory<int32_t>(kCount);
  auto* const sum = scenario::DeviceMemory<int32_t>(kCount);
  auto* const gathered = scenario::DeviceMemory<int32_t>(2 * kCount);
  const auto other = static_cast<uint32_t>(1 - rank);
  for (int turn = 0; turn < kTurns; ++turn) {
    scenario::Launch(stream, "fill", [=] { std::iota(own, own + kCount, turn + rank); });
    CHECK(HcclAllReduce(own, sum, kCount, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream) == HCCL_SUCCESS);
    CHECK(HcclAllGather(own, gathered, kCount, HCCL_DATA_TYPE_INT32, comm, stream) == HCCL_SUCCESS);
    CHECK(HcclBroadcast(own, kCount, HCCL_DATA_TYPE_INT32, 0, comm, stream) == HCCL_SUCCESS);
    HcclSendRecvItem items[] = {{HCCL_SEND, sum, kCount, HCCL_DATA_TYPE_INT32, other},
                                {HCCL_RECV, own, kCount, HCCL_DATA_TYPE_INT32, other}};
    CHECK(HcclBatchSendRecv(items, 2, comm, stream) == HCCL_SUCCESS);
    CHECK(HcclBarrier(comm, stream) == HCCL_SUCCESS);
    CHECK_OK(aclrtSynchronizeStream(stream));
    for (uint64_t index : {uint64_t{0}, kCount / 2, kCount - 1}) {
      const auto base = static_cast<int32_t>(index) + turn;
      CHECK(sum[index] == 2 * base + 1);
      CHECK(own[index] == sum[index]);
      CHECK(gathered[index] == base && gathered[kCount + index] == base + 1);
    }
  }
  for (void* memory : {static_cast<void*>(own), static_cast<void*>(sum), static_cast<void*>(gathered)}) {
    CHECK_OK(aclrtFree(memory));
  }
}

}  // namespace

namespace scenario {

void Collectives() {
  int32_t devices[] = {0, 1};
  HcclComm comms[2];
  CHECK(HcclCommInitAll(2, devices, comms) == HCCL_SUCCESS);
  Together(2, [&](int rank) {
    CHECK_OK(aclrtSetDevice(rank));
    const aclrtStream stream = NewStream();
    Exchange(rank, comms[rank], stream);
    // One comes to something else.
    auto* const word = DeviceMemory<int32_t>(2);
    const uint64_t count = rank == 0 ? 1 : 2;
    CHECK(HcclAllReduce(word, word, count, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comms[rank], stream) == HCCL_SUCCESS);
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_FFTS_PLUS_TIMEOUT);
    CHECK_OK(aclrtFree(word));
    CHECK_OK(aclrtDestroyStream(stream));
  });
  for (HcclComm comm : comms) {
    CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
  }
}

}  // namespace scenario
