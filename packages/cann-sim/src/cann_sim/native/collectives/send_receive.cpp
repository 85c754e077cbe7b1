// Sends and receipts: one alone, or many in a batch.

#include "data_type.h"
#include "launch_collective.h"
#include "message.h"
#include "named_rank.h"

namespace {

using namespace cann_sim::collectives;

HcclResult LaunchOne(const char* function, bool sends, void* buffer, uint64_t count, HcclDataType type, uint32_t peer,
                     HcclComm comm, aclrtStream stream) {
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(function, buffer);
  HCCL_RETURN_IF_REFUSED(CheckMoved(function, type));
  HCCL_FIND_COMMUNICATOR(communicator, function, comm);
  HCCL_RETURN_IF_REFUSED(CheckRank(function, "rank", *communicator, peer));
  return LaunchMessages(function, stream, {{communicator, sends, peer, static_cast<char*>(buffer), count, type}});
}

}  // namespace

HCCL_EXPORT HcclResult HcclSend(void* buffer, uint64_t count, HcclDataType type, uint32_t receiver, HcclComm comm,
                                aclrtStream stream) {
  return LaunchOne("HcclSend", true, buffer, count, type, receiver, comm, stream);
}

HCCL_EXPORT HcclResult HcclRecv(void* buffer, uint64_t count, HcclDataType type, uint32_t sender, HcclComm comm,
                                aclrtStream stream) {
  return LaunchOne("HcclRecv", false, buffer, count, type, sender, comm, stream);
}

HCCL_EXPORT HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclBatchSendRecv";
  HCCL_REQUIRE_POINTER(kFunction, items);
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  std::vector<MessageRequest> requests;
  for (const HcclSendRecvItem* item = items; item != items + count; ++item) {
    if (item->sendRecvType != HCCL_SEND && item->sendRecvType != HCCL_RECV) {
      return Refuse(HCCL_E_PARA, std::string(kFunction) + ": expected a send or a receipt, found type " +
                                     std::to_string(item->sendRecvType));
    }
    HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, item->dataType));
    HCCL_RETURN_IF_REFUSED(CheckRank(kFunction, "rank", *communicator, item->remoteRank));
    requests.push_back({communicator, item->sendRecvType == HCCL_SEND, item->remoteRank, static_cast<char*>(item->buf),
                        item->count, item->dataType});
  }
  return LaunchMessages(kFunction, stream, std::move(requests));
}
