#include "trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "clock/virtual_time.h"
#include "configuration.h"
#include "json_text.h"

namespace {

using cann_sim::Quoted;

// A process of the trace is the host or a device; its tracks are threads, streams or branches.
struct Track {
  int64_t process = 0;
  int64_t number = 0;
};

constexpr int64_t kHost = 0;
constexpr int64_t kFirstBranch = 1'000'000;
constexpr int64_t kBranchesOfGraph = 1'000;
constexpr size_t kBufferBytes = 1 << 16;

int64_t Now() {
  if (cann_sim::clock::kIsOn) {
    return cann_sim::clock::Now();
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// The write of a value to an address: the record of an external event, or its reset.
struct ValueWrite {
  Track track;
  int64_t begin = 0;
};

std::string EventArgument(uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof(text), "\"event\":\"0x%llx\"", static_cast<unsigned long long>(address));
  return text;
}

std::string Microseconds(int64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", static_cast<double>(nanoseconds) / 1000);
  return text;
}

// Of a wait that was come to at this time.
std::string StallArguments(int64_t arrived) {
  const int64_t happened = cann_sim::clock::LatestAwaited();
  return "\"arrived\":" + Microseconds(arrived) + ",\"happened\":" + Microseconds(happened) +
         ",\"stall\":" + Microseconds(std::max<int64_t>(happened - arrived, 0));
}

// The file, and the text that is not in it yet.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : process_(getpid()) {
    // A file that a living process writes, as a parent does, is left to it.
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0) {
      close(file_);
      file_ = open((path + "." + std::to_string(process_)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    }
    if (file_ < 0 || ftruncate(file_, 0) != 0) {
      cann_sim::configuration::Refuse("CANN_SIM_TRACE", "expected a file that can be written, found '" + path + "'");
    }
    text_ = "[";
  }

  void Name(const Track& track, const std::string& process, const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (processes_.insert(track.process).second) {
      Append("\"process_name\",\"ph\":\"M\"", track, ",\"args\":{\"name\":" + Quoted(process) + "}");
    }
    if (tracks_.insert({track.process, track.number}).second) {
      Append("\"thread_name\",\"ph\":\"M\"", track, ",\"args\":{\"name\":" + Quoted(name) + "}");
    }
  }

  void Add(const Track& track, const char* category, const std::string& name, int64_t begin, int64_t end,
           const std::string& arguments = "") {
    const std::lock_guard<std::mutex> lock(mutex_);
    Append(Quoted(name) + ",\"cat\":\"" + category + "\",\"ph\":\"X\",\"ts\":" + Microseconds(begin) +
               ",\"dur\":" + Microseconds(end - begin),
           track, arguments.empty() ? "" : ",\"args\":{" + arguments + "}");
    if (text_.size() > kBufferBytes) {
      Flush();
    }
  }

  void NoteWrite(uint64_t address, const ValueWrite& write) {
    const std::lock_guard<std::mutex> lock(mutex_);
    writes_[address] = write;
  }

  // An arrow to the end of a wait from the write that ended it, the latest one.
  void NoteWait(uint64_t address, const Track& track, int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = writes_.find(address);
    if (found == writes_.end()) {
      return;
    }
    ++arrows_;
    Arrow("s", found->second.track, found->second.begin, "");
    Arrow("f", track, end, ",\"bp\":\"e\"");
  }

  // The file is complete. What comes later, and what a child of fork does, is not in it.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_ < 0 || getpid() != process_) {
      return;
    }
    text_ += "\n]\n";
    Flush();
    close(file_);
    file_ = -1;
  }

 private:
  void Append(const std::string& name, const Track& track, const std::string& rest) {
    text_ += std::string(first_ ? "\n" : ",\n") + "{\"name\":" + name + ",\"pid\":" + std::to_string(track.process) +
             ",\"tid\":" + std::to_string(track.number) + rest + "}";
    first_ = false;
  }

  void Arrow(const char* phase, const Track& track, int64_t time, const std::string& rest) {
    Append(std::string("\"external event\",\"cat\":\"external event\",\"ph\":\"") + phase +
               "\",\"id\":" + std::to_string(arrows_) + ",\"ts\":" + Microseconds(time),
           track, rest);
  }

  void Flush() {
    size_t written = 0;
    while (file_ >= 0 && getpid() == process_ && written < text_.size()) {
      const ssize_t count = write(file_, text_.data() + written, text_.size() - written);
      if (count <= 0) {
        break;
      }
      written += static_cast<size_t>(count);
    }
    text_.clear();
  }

  const pid_t process_;
  std::mutex mutex_;
  int file_ = -1;
  bool first_ = true;
  std::string text_;
  std::map<uint64_t, ValueWrite> writes_;
  int64_t arrows_ = 0;
  std::set<int64_t> processes_;
  std::set<std::pair<int64_t, int64_t>> tracks_;
};

// Never destroyed: threads may still have spans while the process exits.
TraceFile& TheTraceFile() {
  static auto* file = [] {
    auto* made = new TraceFile(cann_sim::configuration::TraceFileName());
    std::atexit([] { TheTraceFile().Close(); });
    return made;
  }();
  return *file;
}

thread_local Track own_track;
thread_local bool is_named = false;

std::string DeviceName(int32_t device) {
  return "device " + std::to_string(device) + (cann_sim::clock::kIsOn ? ", virtual time" : "");
}

void SetTrack(const Track& track, const std::string& process, const std::string& name) {
  own_track = track;
  is_named = true;
  TheTraceFile().Name(track, process, name);
}

const Track& OwnTrack() {
  if (!is_named) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    const int64_t thread = syscall(SYS_gettid);
    SetTrack({kHost, thread}, "host", std::string(name) + " " + std::to_string(thread));
  }
  return own_track;
}

// Opened before the first worker starts, so that it is closed after the last one has ended.
bool OpenTrace() {
  const bool traced = !cann_sim::configuration::TraceFileName().empty();
  if (traced) {
    TheTraceFile();
  }
  return traced;
}

}  // namespace

namespace cann_sim {

const bool kTraced = OpenTrace();

const char* Span::CategoryOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kKernel: return "kernel";
    case TaskKind::kMemoryCopy:
    case TaskKind::kMemorySet: return "memory";
    case TaskKind::kReplay: return "replay";
    case TaskKind::kEventWait:
    case TaskKind::kValueWait: return "wait";
    default: return "task";
  }
}

void Span::Begin(const char* category, std::string name) {
  category_ = category;
  name_ = std::move(name);
  begin_ = Now();
  if (kind_ == TaskKind::kValueWrite) {
    // Before it is done: the wait may end before this span does.
    TheTraceFile().NoteWrite(handle_, {OwnTrack(), begin_});
  }
}

void Span::End() {
  const int64_t end = Now();
  const Track& track = OwnTrack();
  const bool writes = kind_ == TaskKind::kValueWrite;
  const bool waits = kind_ == TaskKind::kValueWait;
  std::string arguments = writes || waits ? EventArgument(handle_) : "";
  if (cann_sim::clock::kIsOn && (waits || kind_ == TaskKind::kEventWait)) {
    arguments += (waits ? "," : "") + StallArguments(begin_);
  }
  TheTraceFile().Add(track, category_, name_, begin_, end, arguments);
  if (waits) {
    // Inside the wait, not where it ends, so that the arrow ends at it.
    TheTraceFile().NoteWait(handle_, track, end - 1);
  }
}

void TraceAsStream(int32_t device, int32_t stream) {
  if (kTraced) {
    SetTrack({1 + device, stream}, DeviceName(device), "stream " + std::to_string(stream));
  }
}

void TraceAsBranch(int32_t device, uint32_t graph, size_t branch, int32_t stream) {
  if (kTraced) {
    const int64_t number = kFirstBranch + graph * kBranchesOfGraph + static_cast<int64_t>(branch);
    SetTrack({1 + device, number}, DeviceName(device),
             "graph " + std::to_string(graph) + ", branch of stream " + std::to_string(stream));
  }
}

}  // namespace cann_sim
