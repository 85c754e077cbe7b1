#include "message.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "../runtime/counters.h"
#include "../runtime/outside_work.h"
#include "data_type.h"
#include "group.h"
#include "launch_collective.h"

namespace {

using cann_sim::collectives::Channel;
using cann_sim::collectives::Communicator;
using cann_sim::collectives::kChannelBytes;
using cann_sim::collectives::kSleepMilliseconds;
using cann_sim::collectives::kYields;
using cann_sim::collectives::MessageRequest;

std::string Describe(const char* function, const MessageRequest& request) {
  return std::string(function) + (request.sends ? ", sending " : ", receiving ") + std::to_string(request.count) + " " +
         cann_sim::collectives::NameOf(request.type) + (request.sends ? " to rank " : " from rank ") +
         std::to_string(request.peer);
}

// A message on its way. It holds this rank's end of the channel.
class Message {
 public:
  Message(const char* function, const MessageRequest& request)
      : function_(function),
        request_(request),
        bytes_(request.count * cann_sim::collectives::SizeOf(request.type)),
        channel_(request.sends ? request.communicator->segment().channel(request.communicator->rank, request.peer)
                               : request.communicator->segment().channel(request.peer, request.communicator->rank)),
        ring_(request.sends ? request.communicator->segment().channel_bytes(request.communicator->rank, request.peer)
                            : request.communicator->segment().channel_bytes(request.peer, request.communicator->rank)),
        end_(request.sends ? request.communicator->sending_end(request.peer)
                           : request.communicator->receiving_end(request.peer)) {}

  // Goes on as far as it can. Whether it got any further.
  bool Move() {
    const bool moved = request_.sends ? MoveOut() : MoveIn();
    if (moved) {
      request_.communicator->segment().Notify();
    }
    return moved;
  }
  bool done() const { return done_; }
  const MessageRequest& request() const { return request_; }
  std::string Describe() const { return ::Describe(function_, request_); }

 private:
  bool MoveOut() {
    bool moved = false;
    if (number_ == 0) {
      number_ = ++end_.messages;
      channel_.bytes = bytes_;
      channel_.type = request_.type;
      channel_.offered.store(number_);
      moved = true;
    }
    uint64_t written = channel_.written.load();
    const uint64_t room = kChannelBytes - (written - channel_.read.load());
    const uint64_t count = std::min<uint64_t>(room, bytes_ - moved_bytes_);
    CopyRing(written, count, [&](char* ring, size_t offset, size_t bytes) {
      std::memcpy(ring, request_.buffer + moved_bytes_ + offset, bytes);
    });
    moved_bytes_ += count;
    channel_.written.store(written + count);
    done_ = moved_bytes_ == bytes_ && channel_.taken.load() >= number_;
    return moved || count > 0 || done_;
  }

  bool MoveIn() {
    bool moved = false;
    if (number_ == 0) {
      if (channel_.offered.load() <= end_.messages) {
        return false;
      }
      number_ = ++end_.messages;
      CheckOffer();
      moved = true;
    }
    const uint64_t read = channel_.read.load();
    const uint64_t count = std::min<uint64_t>(channel_.written.load() - read, bytes_ - moved_bytes_);
    CopyRing(read, count, [&](const char* ring, size_t offset, size_t bytes) {
      std::memcpy(request_.buffer + moved_bytes_ + offset, ring, bytes);
    });
    moved_bytes_ += count;
    channel_.read.store(read + count);
    if (moved_bytes_ == bytes_) {
      channel_.taken.store(number_);
      done_ = true;
    }
    return moved || count > 0 || done_;
  }

  void CheckOffer() {
    const auto type = static_cast<HcclDataType>(channel_.type);
    if (channel_.bytes == bytes_ && type == request_.type) {
      return;
    }
    request_.communicator->FailAndThrow(Describe() + ", but rank " + std::to_string(request_.peer) + " sends " +
                                        std::to_string(channel_.bytes / cann_sim::collectives::SizeOf(type)) + " " +
                                        cann_sim::collectives::NameOf(type));
  }

  // Copies a range of the ring, which may go around its end.
  template <class Copy>
  void CopyRing(uint64_t position, size_t bytes, const Copy& copy) {
    const size_t start = position % kChannelBytes;
    const size_t first = std::min(bytes, kChannelBytes - start);
    if (first > 0) {
      copy(ring_ + start, 0, first);
    }
    if (bytes > first) {
      copy(ring_, first, bytes - first);
    }
  }

  const char* const function_;
  const MessageRequest& request_;
  const uint64_t bytes_;
  Channel& channel_;
  char* const ring_;
  Communicator::ChannelEnd& end_;
  uint64_t number_ = 0;  // of the message in the channel, once it has begun
  uint64_t moved_bytes_ = 0;
  bool done_ = false;
};

// The messages by channel, each channel's in order, and the locks of their ends.
class Queues {
 public:
  Queues(const char* function, const std::vector<MessageRequest>& requests) {
    for (const MessageRequest& request : requests) {
      queues_[{request.communicator.get(), request.peer, request.sends}].emplace_back(function, request);
    }
    // In the order of the map, which is one for all threads of the process.
    for (const auto& [key, queue] : queues_) {
      const auto& [communicator, peer, sends] = key;
      locks_.emplace_back((sends ? communicator->sending_end(peer) : communicator->receiving_end(peer)).mutex);
    }
  }

  // Whether any message got further.
  bool Move() {
    bool moved = false;
    for (auto& [key, queue] : queues_) {
      while (!queue.empty() && queue.front().Move()) {
        moved = true;
        if (queue.front().done()) {
          queue.pop_front();
        }
      }
    }
    return moved;
  }

  // The messages that come next, one a channel; empty when all are done.
  std::vector<const Message*> Next() const {
    std::vector<const Message*> next;
    for (const auto& [key, queue] : queues_) {
      if (!queue.empty()) {
        next.push_back(&queue.front());
      }
    }
    return next;
  }

 private:
  std::map<std::tuple<Communicator*, uint32_t, bool>, std::deque<Message>> queues_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

// A thread can only sleep for the changes of one communicator.
constexpr uint32_t kSleepMillisecondsAmongSeveral = 1;

bool AreOfOneCommunicator(const std::vector<const Message*>& messages) {
  return std::all_of(messages.begin(), messages.end(), [&](const Message* message) {
    return message->request().communicator == messages.front()->request().communicator;
  });
}

// Moves the messages; where none gets any further, waits a little for the rank that the turn's message is for.
class Mover {
 public:
  explicit Mover(Queues& queues) : queues_(queues) {}

  void Go(const std::vector<const Message*>& next) {
    const Message& watched = *next[++turn_ % next.size()];
    const MessageRequest& request = watched.request();
    const uint32_t since = request.communicator->segment().changed();
    if (queues_.Move()) {
      begun_ = Communicator::Clock::now();
      idle_turns_ = 0;
    } else if (++idle_turns_ < kYields) {
      sched_yield();
    } else {
      const auto missing = [&] { return queues_.Move() ? std::vector<uint32_t>{} : std::vector<uint32_t>{request.peer}; };
      request.communicator->Pause(watched.Describe(), missing, since, begun_,
                                  AreOfOneCommunicator(next) ? kSleepMilliseconds : kSleepMillisecondsAmongSeveral);
    }
  }

 private:
  Queues& queues_;
  size_t turn_ = 0;
  size_t idle_turns_ = 0;
  Communicator::Clock::time_point begun_ = Communicator::Clock::now();
};

}  // namespace

namespace cann_sim::collectives {

void ExchangeMessages(const char* function, const std::vector<MessageRequest>& requests) {
  if (requests.empty()) {
    return;
  }
  const OutsideWork outside([&] { return "waits in " + Describe(function, requests.front()); });
  for (const MessageRequest& request : requests) {
    request.communicator->CheckUsable();
  }
  Queues queues(function, requests);
  Mover mover(queues);
  for (std::vector<const Message*> next = queues.Next(); !next.empty(); next = queues.Next()) {
    mover.Go(next);
  }
}

void RunMessages(const char* function, const std::vector<MessageRequest>& requests) {
  for (const MessageRequest& request : requests) {
    CountCollective(request.sends ? request.count * SizeOf(request.type) : 0);
  }
  ExchangeMessages(function, requests);
  for (const MessageRequest& request : requests) {
    if (!request.sends) {
      NoteWrittenMemory(request.buffer, request.count * SizeOf(request.type));
    }
  }
}

std::vector<MemoryAccess> AccessesOf(const std::vector<MessageRequest>& requests) {
  std::vector<MemoryAccess> accesses;
  for (const MessageRequest& request : requests) {
    accesses.push_back(MemoryAccess::Bytes(request.sends ? "sent" : "received", request.buffer,
                                           request.count * SizeOf(request.type), !request.sends));
  }
  return accesses;
}

HcclResult LaunchMessages(const char* function, aclrtStream stream, std::vector<MessageRequest> requests) {
  if (requests.empty()) {
    return HCCL_SUCCESS;
  }
  if (GroupIsOpen()) {
    return AddToGroup(stream, std::move(requests));
  }
  std::vector<MemoryAccess> accesses = AccessesOf(requests);
  return LaunchCollective(function, stream, std::move(accesses),
                          [function, requests = std::move(requests)] { RunMessages(function, requests); });
}

}  // namespace cann_sim::collectives
