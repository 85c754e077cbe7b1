// Captures that fork and join, replays on several streams, graphs that are destroyed while they run.

#include <chrono>
#include <memory>

#include "scenario.h"

namespace scenario {

namespace {

// On `streams[0]`: value = 1, then doubled on every other stream at once, then summed.
struct ForkedGraph {
  explicit ForkedGraph(const std::vector<aclrtStream>& streams, aclmdlRICaptureMode mode) : parts(streams.size()) {
    const aclrtEvent fork = NewEvent();
    CHECK_OK(aclmdlRICaptureBegin(streams[0], mode));
    Launch(streams[0], "begin", [this] { value = 1; });
    CHECK_OK(aclrtRecordEvent(fork, streams[0]));
    for (size_t index = 1; index < streams.size(); ++index) {
      const aclrtEvent joined = NewEvent();
      CHECK_OK(aclrtStreamWaitEvent(streams[index], fork));
      Launch(streams[index], "double", [this, index] { parts[index] = 2 * value; });
      CHECK_OK(aclrtRecordEvent(joined, streams[index]));
      CHECK_OK(aclrtStreamWaitEvent(streams[0], joined));
      CHECK_OK(aclrtDestroyEvent(joined));
    }
    Launch(streams[0], "sum", [this] {
      for (const int part : parts) {
        total += part;
      }
    });
    CHECK_OK(aclmdlRICaptureEnd(streams[0], &graph));
    CHECK_OK(aclrtDestroyEvent(fork));
  }

  aclmdlRI graph = nullptr;
  int value = 0;
  int total = 0;
  std::vector<int> parts;
};

}  // namespace

void Captures() {
  Together(3, [](int) {
    const std::vector<aclrtStream> streams = NewStreams(3);
    for (int turn = 0; turn < 20; ++turn) {
      ForkedGraph forked(streams, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
      aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
      CHECK_OK(aclmdlRICaptureGetInfo(streams[0], &status, nullptr));
      CHECK(status == ACL_MODEL_RI_CAPTURE_STATUS_NONE);
      CHECK_OK(aclmdlRIExecuteAsync(forked.graph, streams[0]));
      CHECK_OK(aclrtSynchronizeStream(streams[0]));
      CHECK(forked.total == 4);
      CHECK_OK(aclmdlRIDestroy(forked.graph));
      // A capture that nobody joins fails, and the streams continue.
      const aclrtEvent fork = NewEvent();
      CHECK_OK(aclmdlRICaptureBegin(streams[0], ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
      CHECK_OK(aclrtRecordEvent(fork, streams[0]));
      CHECK_OK(aclrtStreamWaitEvent(streams[1], fork));
      Launch(streams[1], "unjoined", [] {});
      CHECK_CODE(aclrtSynchronizeStream(streams[1]), ACL_ERROR_RT_STREAM_CAPTURED);
      aclmdlRI graph = nullptr;
      CHECK_CODE(aclmdlRICaptureEnd(streams[0], &graph), ACL_ERROR_RT_STREAM_UNJOINED);
      CHECK_OK(aclrtDestroyEvent(fork));
      CHECK_OK(aclrtSynchronizeStream(streams[1]));
    }
    Destroy(streams);
  });
}

void Replays() {
  constexpr int kReplays = 100;
  const std::vector<aclrtStream> streams = NewStreams(4);
  ForkedGraph forked(streams, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
  Together(3, [&](int) {
    const aclrtStream stream = NewStream();
    for (int number = 0; number < kReplays; ++number) {
      CHECK_OK(aclmdlRIExecuteAsync(forked.graph, stream));
    }
    CHECK_OK(aclrtDestroyStream(stream));
  });
  CHECK(forked.total == 3 * kReplays * 6);
  CHECK_OK(aclmdlRIDestroy(forked.graph));
  CHECK_CODE(aclmdlRIExecuteAsync(forked.graph, streams[0]), ACL_ERROR_RT_PARAM_INVALID);
  Destroy(streams);
}

void Destruction() {
  for (int turn = 0; turn < 20; ++turn) {
    const std::vector<aclrtStream> streams = NewStreams(3);
    ForkedGraph forked(streams, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    Launch(streams[0], "slow", [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    CHECK_OK(aclmdlRIExecuteAsync(forked.graph, streams[0]));
    CHECK_OK(aclmdlRIExecuteAsync(forked.graph, streams[0]));
    CHECK_OK(aclmdlRIDestroy(forked.graph));
    CHECK_OK(aclrtSynchronizeStream(streams[0]));
    CHECK(forked.total == 2 * 4);
    // What is queued after a running kernel is dropped, or has run; never half of it.
    auto count = std::make_shared<int>(0);
    for (int number = 0; number < 10; ++number) {
      Launch(streams[1], "queued", [count] { ++*count; });
    }
    CHECK_OK(aclrtDestroyStreamForce(streams[1]));
    CHECK_OK(aclrtDestroyStream(streams[0]));
    CHECK_OK(aclrtDestroyStream(streams[2]));
  }
}

}  // namespace scenario
