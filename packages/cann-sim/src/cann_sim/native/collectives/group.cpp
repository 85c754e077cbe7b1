#include "group.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "../runtime/outside_work.h"
#include "launch_collective.h"

namespace {

using cann_sim::collectives::MessageRequest;

constexpr const char* kBatch = "HcclBatchSendRecv";
constexpr std::chrono::milliseconds kProcessCheckInterval{50};

// The messages of one stream in one group. No more are added once it is closed.
class Batch {
 public:
  void Add(std::vector<MessageRequest> messages) {
    std::move(messages.begin(), messages.end(), std::back_inserter(messages_));
  }

  void Close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  // Called by the kernel.
  void Run() {
    {
      const cann_sim::OutsideWork outside([] { return "waits for HcclGroupEnd"; });
      std::unique_lock<std::mutex> lock(mutex_);
      while (!changed_.wait_for(lock, kProcessCheckInterval, [this] { return closed_; })) {
        cann_sim::OutsideWork::CheckProcess();
      }
    }
    cann_sim::collectives::RunMessages(kBatch, messages_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::vector<MessageRequest> messages_;
};

struct Group {
  ~Group() { Close(); }

  void Close() {
    for (const auto& [stream, batch] : batches) {
      batch->Close();
    }
    batches.clear();
  }

  int depth = 0;
  std::map<aclrtStream, std::shared_ptr<Batch>> batches;
};

Group& GroupOfThisThread() {
  thread_local Group group;
  return group;
}

}  // namespace

namespace cann_sim::collectives {

bool GroupIsOpen() { return GroupOfThisThread().depth > 0; }

HcclResult AddToGroup(aclrtStream stream, std::vector<MessageRequest> messages) {
  std::shared_ptr<Batch>& batch = GroupOfThisThread().batches[stream];
  const bool first = batch == nullptr;
  if (first) {
    batch = std::make_shared<Batch>();
  }
  batch->Add(std::move(messages));
  return first ? LaunchCollective(kBatch, stream, {}, [batch = batch] { batch->Run(); }) : HCCL_SUCCESS;
}

}  // namespace cann_sim::collectives

HCCL_EXPORT HcclResult HcclGroupStart() {
  ++GroupOfThisThread().depth;
  return HCCL_SUCCESS;
}

HCCL_EXPORT HcclResult HcclGroupEnd() {
  Group& group = GroupOfThisThread();
  if (group.depth == 0) {
    return cann_sim::collectives::Refuse(HCCL_E_PARA, "HcclGroupEnd: no group was started on this thread");
  }
  if (--group.depth == 0) {
    group.Close();
  }
  return HCCL_SUCCESS;
}
