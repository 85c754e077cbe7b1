// The memory that the ranks of a communicator have in common: who they are, how far each has come, and the bytes that they
// exchange. It is a file without a name, so it is gone with the last process that has it, however that one ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "process.h"

namespace cann_sim::collectives {

constexpr uint32_t kMostRanks = 64;
// Each rank has two windows, for which collectives take turns. A page that nobody wrote to costs nothing.
constexpr size_t kWindowBytes = 1 << 20;
constexpr size_t kChannelBytes = 128 << 10;
constexpr size_t kTextBytes = 1024;

// The request of a rank. Those of all ranks must be equal.
struct Description {
  char operation[32];
  char details[96];  // elements, data type, reduction, root
};

enum class RankState : uint32_t { kAbsent, kJoined, kLeft };

struct alignas(64) RankSlot {
  std::atomic<uint32_t> state;
  std::atomic<int32_t> process;
  std::atomic<uint64_t> process_start;
  std::atomic<uint64_t> steps;       // meetings of all ranks that this one has come to
  std::atomic<uint64_t> operations;  // collectives that it has begun
  Description descriptions[2];       // of the operations, in turns
};

// One direction between two ranks. The first four are written by the sender, the last two by the receiver.
struct alignas(64) Channel {
  std::atomic<uint64_t> offered;  // messages begun
  uint64_t bytes;                 // of the latest of them
  uint32_t type;
  std::atomic<uint64_t> written;  // bytes of all messages
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint64_t> taken;  // messages ended
};

struct Header {
  uint64_t identity;             // of the root info
  std::atomic<uint32_t> ranks;   // 0 until the first one joins
  std::atomic<uint32_t> changed;  // grows with every change that a rank may wait for
  std::atomic<uint32_t> waiters;
  std::atomic<uint32_t> failure_state;  // 0 none, 1 being written, 2 written
  char failure[kTextBytes];
};

class SharedSegment {
 public:
  // A new file with its identity written; below 0 where there is none to be had.
  static int CreateFile(uint64_t identity);
  // Maps the file for so many ranks; null where it is not that of the identity, or cannot be mapped. Does not keep the file.
  static std::unique_ptr<SharedSegment> Map(int file, uint64_t identity, uint32_t ranks);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  Header& header() { return *reinterpret_cast<Header*>(base_); }
  RankSlot& slot(uint32_t rank);
  char* window(uint32_t rank, uint32_t turn);
  Channel& channel(uint32_t sender, uint32_t receiver);
  char* channel_bytes(uint32_t sender, uint32_t receiver);

  // Wakes those who wait for a change that was made before the call.
  void Notify();
  // What Sleep is given; read before the state that is waited for.
  uint32_t changed() { return header().changed.load(); }
  // Returns when something has changed since, or after some milliseconds, or for no reason.
  void Sleep(uint32_t since, uint32_t milliseconds);

  // Keeps the first text that any rank gives.
  void SetFailure(const std::string& text);
  // Empty where all is well.
  std::string Failure();

 private:
  SharedSegment(char* base, size_t bytes, uint32_t ranks) : base_(base), bytes_(bytes), ranks_(ranks) {}

  char* const base_;
  const size_t bytes_;
  const uint32_t ranks_;
};

}  // namespace cann_sim::collectives
