#include "memory_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "configuration.h"
#include "hexadecimal.h"
#include "launch.h"
#include "memory.h"
#include "order.h"

namespace {

using cann_sim::HappenedBefore;
using cann_sim::MemoryAccess;
using cann_sim::Moment;

// Of a tensor of more pieces no order is checked: each would be an entry of its own.
constexpr int64_t kMostPieces = 256;
// Of new memory, where the check is full: NaN in every floating type, -1 in every signed one.
constexpr int kPoison = 0xFF;

// What is known of a launch, for all its runs.
struct Launch {
  const char* name;
  bool captured;
  std::vector<MemoryAccess> accesses;
  std::vector<uint64_t> allocations;  // of each; 0 where the memory is not the runtime's
  std::string wrong;                  // found when it was launched
};

// That a launch touched memory.
struct Touch {
  std::shared_ptr<const Launch> launch;  // null where nobody did
  size_t access = 0;
  Moment moment;
};

// A range that launches touched as one.
struct Cell {
  uintptr_t end = 0;
  Touch write;
  std::vector<Touch> reads;  // since that write; of each lane the last
  std::vector<Touch> parts;  // writes to some of it
};

struct Shadow {
  std::mutex mutex;
  std::map<uintptr_t, Cell> cells;           // by first address
  std::map<uintptr_t, uintptr_t> new_memory;  // end by first address; where the check is full
  std::map<uintptr_t, uintptr_t> written;     // the same, of what was written of it
  std::string mistake;
};

Shadow& TheShadow() {
  static auto* shadow = new Shadow;
  return *shadow;
}

uintptr_t NumberOf(const void* address) { return reinterpret_cast<uintptr_t>(address); }

std::string Describe(const MemoryAccess& access) {
  std::string text = std::string("'") + access.argument + "' (";
  if (*access.type == '\0') {
    return text + std::to_string(access.extent) + " bytes)";
  }
  text += std::string(access.type) + " [";
  for (int dim = 0; dim < access.rank; ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(access.sizes[dim]);
  }
  return text + "])";
}

std::string NameOf(const Launch& launch) { return std::string(launch.name) + (launch.captured ? " (in a graph)" : ""); }

// Calls `each` with the first address and the end of every piece.
template <class Each>
void ForEachPiece(const MemoryAccess& access, const Each& each) {
  int64_t index[MemoryAccess::kMostDimensions] = {};
  const char* piece = access.first;
  for (;;) {
    each(NumberOf(piece), NumberOf(piece) + access.piece_bytes);
    int level = 0;
    while (level < access.levels && ++index[level] == access.counts[level]) {
      piece -= access.steps[level] * (access.counts[level] - 1);
      index[level++] = 0;
    }
    if (level == access.levels) {
      return;
    }
    piece += access.steps[level];
  }
}

// Makes the address a boundary between cells.
void SplitAt(std::map<uintptr_t, Cell>& cells, uintptr_t address) {
  auto after = cells.lower_bound(address);
  if (after == cells.begin()) {
    return;
  }
  const auto before = std::prev(after);
  if (before->second.end > address) {
    Cell rest = before->second;
    before->second.end = address;
    cells.emplace_hint(after, address, std::move(rest));
  }
}

// The first touch that nothing orders before this thread, or null.
const Touch* FindUnordered(const std::vector<Touch>& touches) {
  const auto found = std::find_if(touches.begin(), touches.end(), [](const Touch& touch) { return !HappenedBefore(touch.moment); });
  return found == touches.end() ? nullptr : &*found;
}

const Touch* FindUnordered(const Touch& touch) {
  return touch.launch == nullptr || HappenedBefore(touch.moment) ? nullptr : &touch;
}

void Keep(std::vector<Touch>& touches, const Touch& touch) {
  touches.erase(std::remove_if(touches.begin(), touches.end(), [](const Touch& other) { return HappenedBefore(other.moment); }),
                touches.end());
  touches.push_back(touch);
}

std::string DescribeUnordered(const Touch& here, const Touch& there) {
  const MemoryAccess& own = here.launch->accesses[here.access];
  const MemoryAccess& other = there.launch->accesses[there.access];
  const std::string lane = cann_sim::OrderedLane::Here();
  return NameOf(*here.launch) + " on " + lane + ": nothing orders its " + (own.writes ? "write" : "read") + " of " + Describe(own) +
         " behind " + NameOf(*there.launch) + " on " + there.moment.where + ", which " + (other.writes ? "writes " : "reads ") +
         Describe(other) + " in the same memory. Let " + lane + " wait for an event that is recorded behind " + there.launch->name +
         "; where the allocator gave the memory on meanwhile, call record_stream of the tensor that had it";
}

// Notes the touch of a piece. Returns what touched it before and is not ordered before it.
std::optional<Touch> TouchPiece(std::map<uintptr_t, Cell>& cells, uintptr_t first, uintptr_t end, const Touch& touch) {
  const MemoryAccess& access = touch.launch->accesses[touch.access];
  SplitAt(cells, first);
  SplitAt(cells, end);
  auto cell = cells.lower_bound(first);
  const bool whole = access.writes && !access.writes_a_part;
  for (auto next = cell; next != cells.end() && next->first < end; ++next) {
    const Touch* other = FindUnordered(next->second.write);
    if (other == nullptr && whole) {
      other = FindUnordered(next->second.reads);
      other = other != nullptr ? other : FindUnordered(next->second.parts);
    }
    if (other != nullptr) {
      return *other;
    }
  }
  if (whole) {
    while (cell != cells.end() && cell->first < end) {
      cell = cells.erase(cell);
    }
    cells.emplace_hint(cell, first, Cell{end, touch, {}, {}});
    return std::nullopt;
  }
  while (first < end) {
    if (cell == cells.end() || cell->first > first) {
      const uintptr_t gap = cell == cells.end() ? end : std::min(end, cell->first);
      cell = cells.emplace_hint(cell, first, Cell{gap, {}, {}, {}});
    }
    Keep(access.writes ? cell->second.parts : cell->second.reads, touch);
    first = cell->second.end;
    ++cell;
  }
  return std::nullopt;
}

// Notes all that the launch touches, as done by this lane, or by the host. Returns what is wrong with it, or nothing.
std::string FindUnorderedAccess(const std::shared_ptr<const Launch>& launch, const Moment& moment) {
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  std::string mistake;
  for (size_t index = 0; index < launch->accesses.size() && mistake.empty(); ++index) {
    const MemoryAccess& access = launch->accesses[index];
    if (launch->allocations[index] == 0 || access.pieces() > kMostPieces) {
      continue;
    }
    const Touch touch{launch, index, moment};
    ForEachPiece(access, [&](uintptr_t first, uintptr_t end) {
      if (mistake.empty()) {
        if (const std::optional<Touch> other = TouchPiece(shadow.cells, first, end, touch)) {
          mistake = DescribeUnordered(touch, *other);
        }
      }
    });
  }
  return mistake;
}

std::string FindFreed(const Launch& launch, const char* when) {
  for (size_t index = 0; index < launch.accesses.size(); ++index) {
    const MemoryAccess& access = launch.accesses[index];
    if (launch.allocations[index] != 0 && cann_sim::AllocationOf(access.first, access.extent) != launch.allocations[index]) {
      return NameOf(launch) + ": the memory of " + Describe(access) + " was freed " + when +
             (launch.captured ? ". Keep the tensor for as long as the graph is replayed"
                              : ". Synchronise with the stream before memory that it uses is freed");
    }
  }
  return "";
}

// The part of a range that is in new memory, where the check is full, whether any of it was written. With the lock.
bool IsUnwritten(const Shadow& shadow, uintptr_t first, uintptr_t end) {
  auto made = shadow.new_memory.upper_bound(first);
  if (made == shadow.new_memory.begin() || std::prev(made)->second < end) {
    return false;
  }
  const auto written = shadow.written.lower_bound(end);
  return written == shadow.written.begin() || std::prev(written)->second <= first;
}

void NoteWritten(Shadow& shadow, uintptr_t first, uintptr_t end) {
  auto next = shadow.written.upper_bound(first);
  if (next != shadow.written.begin() && std::prev(next)->second >= first) {
    --next;
    first = next->first;
  }
  while (next != shadow.written.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = shadow.written.erase(next);
  }
  shadow.written[first] = end;
}

void Erase(std::map<uintptr_t, uintptr_t>& ranges, uintptr_t first, uintptr_t end) {
  auto next = ranges.lower_bound(first);
  if (next != ranges.begin() && std::prev(next)->second > first) {
    --next;
  }
  while (next != ranges.end() && next->first < end) {
    const auto [start, stop] = *next;
    next = ranges.erase(next);
    if (start < first) {
      ranges[start] = first;
    }
    if (stop > end) {
      ranges[end] = stop;
    }
  }
}

std::string FindUnwritten(const Launch& launch) {
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  for (const MemoryAccess& access : launch.accesses) {
    if (access.reads && IsUnwritten(shadow, NumberOf(access.first), NumberOf(access.first) + access.extent)) {
      return NameOf(launch) + ": " + Describe(access) + " is read, and nothing was written to any of it since the memory was "
                                                        "allocated. A device finds there what an earlier user left";
    }
  }
  return "";
}

void NoteWrites(const Launch& launch) {
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  for (const MemoryAccess& access : launch.accesses) {
    if (access.writes) {
      NoteWritten(shadow, NumberOf(access.first), NumberOf(access.first) + access.extent);
    }
  }
}

bool Overlaps(const MemoryAccess& one, const MemoryAccess& other) {
  return one.first < other.first + other.extent && other.first < one.first + one.extent;
}

// The bytes of the arguments that a launch only reads, to see that it leaves them as they were.
class ReadArguments {
 public:
  explicit ReadArguments(const Launch& launch) : launch_(launch) {
    for (size_t index = 0; index < launch.accesses.size(); ++index) {
      const MemoryAccess& access = launch.accesses[index];
      const bool is_written = std::any_of(launch.accesses.begin(), launch.accesses.end(), [&](const MemoryAccess& other) {
        return other.writes && Overlaps(access, other);
      });
      const bool is_kept = launch.allocations[index] != 0 && !is_written;
      kept_.emplace_back(is_kept ? std::string(access.first, access.extent) : std::string());
    }
  }
  std::string FindChanged() const {
    for (size_t index = 0; index < kept_.size(); ++index) {
      const MemoryAccess& access = launch_.accesses[index];
      if (!kept_[index].empty() && std::memcmp(kept_[index].data(), access.first, access.extent) != 0) {
        return NameOf(launch_) + ": the kernel changed " + Describe(access) + ", which it only reads";
      }
    }
    return "";
  }

 private:
  const Launch& launch_;
  std::vector<std::string> kept_;
};

void ThrowMistake(const std::string& mistake) {
  if (!mistake.empty()) {
    throw std::runtime_error(mistake);
  }
}

void CheckGuards(const Launch& launch) {
  for (size_t index = 0; index < launch.accesses.size(); ++index) {
    const MemoryAccess& access = launch.accesses[index];
    if (access.writes && launch.allocations[index] != 0) {
      const size_t overwritten = cann_sim::OverwrittenBehind(access.first);
      if (overwritten != 0) {
        throw std::runtime_error(NameOf(launch) + ": when the kernel ended, " + std::to_string(overwritten) +
                                 " bytes behind the allocation of " + Describe(access) + " were overwritten");
      }
    }
  }
}

void Run(const std::shared_ptr<const Launch>& launch, const std::function<void()>& run) {
  const bool full = cann_sim::configuration::ChecksMemoryFully();
  ThrowMistake(launch->wrong);
  ThrowMistake(FindFreed(*launch, launch->captured ? "after it was captured" : "before the kernel began"));
  ThrowMistake(full ? FindUnwritten(*launch) : "");
  ThrowMistake(FindUnorderedAccess(launch, Moment::Now()));
  if (full) {
    const ReadArguments arguments(*launch);
    run();
    ThrowMistake(arguments.FindChanged());
    NoteWrites(*launch);
  } else {
    run();
  }
  ThrowMistake(FindFreed(*launch, "while the kernel ran"));
  CheckGuards(*launch);
}

std::shared_ptr<const Launch> MakeLaunch(const char* name, std::vector<MemoryAccess> accesses, bool captured) {
  accesses.erase(std::remove_if(accesses.begin(), accesses.end(), [](const MemoryAccess& access) { return access.extent == 0; }),
                 accesses.end());
  auto launch = std::make_shared<Launch>(Launch{name, captured, std::move(accesses), {}, ""});
  for (const MemoryAccess& access : launch->accesses) {
    uint64_t allocation = cann_sim::AllocationOf(access.first, access.extent);
    if (allocation == 0 && launch->wrong.empty() && cann_sim::AllocationOf(access.first, 1) != 0) {
      launch->wrong = std::string(name) + ": " + Describe(access) + " is " + std::to_string(access.extent) + " bytes from " +
                      cann_sim::Hexadecimal(NumberOf(access.first)) + ", which reach outside the allocation that they begin in";
    }
    launch->allocations.push_back(allocation);
  }
  return launch;
}

}  // namespace

namespace cann_sim {

bool MemoryIsChecked() { return configuration::ChecksMemory(); }

void NoteWrittenMemory(const void* address, size_t bytes) { NoteUnseenWrites(address, bytes); }

std::function<void()> Checked(const char* name, std::vector<MemoryAccess> accesses, bool captured, std::function<void()> run) {
  if (accesses.empty() || !configuration::ChecksMemory()) {
    return run;
  }
  return [launch = MakeLaunch(name, std::move(accesses), captured), run = std::move(run)] { Run(launch, run); };
}

std::string FindHostMistake(const char* name, std::vector<MemoryAccess> accesses) {
  if (!configuration::ChecksMemory()) {
    return "";
  }
  const std::shared_ptr<const Launch> launch = MakeLaunch(name, std::move(accesses), false);
  std::string mistake = !launch->wrong.empty() ? launch->wrong : FindUnorderedAccess(launch, Moment::OfHost());
  if (mistake.empty() && configuration::ChecksMemoryFully()) {
    mistake = FindUnwritten(*launch);
    NoteWrites(*launch);
  }
  return mistake;
}

void NoteNewMemory(void* address, size_t bytes) {
  if (!configuration::ChecksMemoryFully()) {
    return;
  }
  std::memset(address, kPoison, bytes);
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  shadow.new_memory[NumberOf(address)] = NumberOf(address) + bytes;
}

void NoteFreedMemory(const char* function, const void* address, size_t bytes) {
  if (!configuration::ChecksMemory()) {
    return;
  }
  const uintptr_t first = NumberOf(address);
  const uintptr_t end = first + bytes;
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  shadow.new_memory.erase(first);
  Erase(shadow.written, first, end);
  SplitAt(shadow.cells, first);
  SplitAt(shadow.cells, end);
  auto cell = shadow.cells.lower_bound(first);
  while (cell != shadow.cells.end() && cell->first < end) {
    const Touch* touch = FindUnordered(cell->second.write);
    touch = touch != nullptr ? touch : FindUnordered(cell->second.reads);
    touch = touch != nullptr ? touch : FindUnordered(cell->second.parts);
    if (touch != nullptr && shadow.mistake.empty()) {
      shadow.mistake = std::string(function) + ": memory was freed of which the host does not know that " + NameOf(*touch->launch) +
                       " on " + touch->moment.where + ", which uses it as " + Describe(touch->launch->accesses[touch->access]) +
                       ", has ended. Synchronise with that stream, or with an event behind the kernel, before";
    }
    cell = shadow.cells.erase(cell);
  }
}

void NoteUnseenWrites(const void* address, size_t bytes) {
  if (!configuration::ChecksMemoryFully()) {
    return;
  }
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  NoteWritten(shadow, NumberOf(address), NumberOf(address) + bytes);
}

void KeepMemoryMistake(std::string mistake) {
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  if (shadow.mistake.empty()) {
    shadow.mistake = std::move(mistake);
  }
}

std::string TakeMemoryMistake() {
  if (!configuration::ChecksMemory()) {
    return "";
  }
  Shadow& shadow = TheShadow();
  const std::lock_guard<std::mutex> lock(shadow.mutex);
  return std::exchange(shadow.mistake, "");
}

}  // namespace cann_sim
