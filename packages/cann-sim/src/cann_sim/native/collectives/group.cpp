#include "group.h"

#include <algorithm>
#include <utility>

#include "launch_collective.h"

namespace {

using cann_sim::collectives::MessageRequest;

struct GroupedCollective {
  const char* function;
  aclrtStream stream;
  std::function<void()> run;
};

// The messages of one stream.
struct GroupedMessages {
  aclrtStream stream;
  std::vector<MessageRequest> messages;
};

struct Group {
  int depth = 0;
  std::vector<GroupedCollective> collectives;
  std::vector<GroupedMessages> messages;
};

Group& GroupOfThisThread() {
  thread_local Group group;
  return group;
}

// Everything is tried, so that a rank that is refused one does not keep the others waiting for the rest.
HcclResult LaunchAll(Group group) {
  HcclResult first = HCCL_SUCCESS;
  const auto keep = [&first](HcclResult result) { first = first == HCCL_SUCCESS ? result : first; };
  for (GroupedCollective& collective : group.collectives) {
    keep(cann_sim::collectives::LaunchCollective(collective.function, collective.stream, std::move(collective.run)));
  }
  for (GroupedMessages& grouped : group.messages) {
    keep(cann_sim::collectives::LaunchMessages("HcclGroupEnd", grouped.stream, std::move(grouped.messages)));
  }
  return first;
}

}  // namespace

namespace cann_sim::collectives {

bool GroupIsOpen() { return GroupOfThisThread().depth > 0; }

void AddToGroup(const char* function, aclrtStream stream, std::function<void()> run) {
  GroupOfThisThread().collectives.push_back({function, stream, std::move(run)});
}

void AddToGroup(aclrtStream stream, std::vector<MessageRequest> messages) {
  std::vector<GroupedMessages>& all = GroupOfThisThread().messages;
  auto found = std::find_if(all.begin(), all.end(), [&](const GroupedMessages& grouped) { return grouped.stream == stream; });
  if (found == all.end()) {
    found = all.insert(all.end(), {stream, {}});
  }
  std::move(messages.begin(), messages.end(), std::back_inserter(found->messages));
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
  return --group.depth > 0 ? HCCL_SUCCESS : LaunchAll(std::exchange(group, {}));
}
