// From link frames to channels: both ends through the seam, and each way in which a peer's link frame can be wrong.

#include <array>

#include <fcntl.h>

#include "link.hpp"
#include "shm_pair.hpp"

using namespace ofl;
using shm_pair::Frame;
using shm_pair::Kept;
using shm_pair::kBudget;

namespace {

constexpr std::uint32_t kFrameBytes = 1U << 20;

std::span<const std::byte> bytes_of(const wire::ShmLinkBody& body) { return std::as_bytes(std::span(&body, 1)); }

std::unique_ptr<Link> opened(Role role, std::uint32_t frame_bytes_max = kFrameBytes) {
  auto link = make_shm_link();
  CHECK(link->open(role, -1, frame_bytes_max).status == OFL_OK);
  return link;
}

bool refuses(Link& link, std::span<const std::byte> theirs, std::span<UniqueFd> descriptors, const char* words) {
  const Outcome outcome = link.join(theirs, descriptors);
  return outcome.status == OFL_REFUSED && outcome.text.find(words) != std::string::npos;
}

// What SCM_RIGHTS does with the descriptors of a link.
std::vector<UniqueFd> passed(const Link& link) {
  std::vector<UniqueFd> arrived;
  for (const int descriptor : link.descriptors()) arrived.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  return arrived;
}

}  // namespace

TEST(two_links_become_two_channels) {
  const auto client = opened(Role::client, 4096);
  const auto server = opened(Role::server, 1U << 20);
  CHECK(client->descriptors().empty());
  CHECK(server->join(client->ours(), {}).status == OFL_OK);
  CHECK(server->descriptors().size() == 1);
  wire::ShmLinkBody decided{};
  std::memcpy(&decided, server->ours().data(), sizeof decided);
  CHECK(decided.ring_bytes == choose_ring_bytes(1U << 20));  // the larger of both wishes
  CHECK(decided.region_bytes == region_bytes_for(decided.ring_bytes));
  std::vector<UniqueFd> arrived = passed(*server);
  CHECK(client->join(server->ours(), arrived).status == OFL_OK);
  int sockets[2];
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
  std::unique_ptr<Channel> ours;
  std::unique_ptr<Channel> theirs;
  CHECK(server->finish(UniqueFd(sockets[0]), ours).status == OFL_OK);
  CHECK(client->finish(UniqueFd(sockets[1]), theirs).status == OFL_OK);
  CHECK(ours->describe().find("shm, rings of " + std::to_string(decided.ring_bytes)) == 0);
  CHECK(!ours->capabilities().one_sided && ours->capabilities().direct_placement);
  Kept kept;
  Frame there(1, 5000);
  CHECK(theirs->send(there.out) == Progress::done);
  CHECK(ours->receive(kept, kBudget) == Progress::blocked);
  Frame back(2, 6000);
  CHECK(ours->place({}, back.out) == Progress::done);
  CHECK(theirs->receive(kept, kBudget) == Progress::blocked);
  CHECK(kept.frames == 2 && kept.spoiled == 0);
}

TEST(a_clients_link_frame_is_refused_for_each_field_that_is_wrong) {
  const struct {
    wire::ShmLinkBody body;
    const char* words;
  } cases[] = {
      {{0, 0}, "ring_bytes is not a power of two"},
      {{kRingBytesMin + 4096, 0}, "ring_bytes is not a power of two"},
      {{kRingBytesMin / 2, 0}, "ring_bytes is not from"},
      {{std::uint64_t{1} << 40, 0}, "ring_bytes is not from"},
      {{kRingBytesMin, 4096}, "region_bytes"},
  };
  for (const auto& [body, words] : cases) {
    const auto server = opened(Role::server);
    CHECK(refuses(*server, bytes_of(body), {}, words));
    CHECK(server->descriptors().empty());
  }
  const wire::ShmLinkBody good{kRingBytesMin, 0};
  CHECK(refuses(*opened(Role::server), bytes_of(good).first(15), {}, "body_bytes"));
  std::array<UniqueFd, 1> gift{UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
  CHECK(refuses(*opened(Role::server), bytes_of(good), gift, "descriptors"));
}

TEST(a_servers_link_frame_is_refused_without_its_memory) {
  const auto server = opened(Role::server);
  CHECK(server->join(opened(Role::client)->ours(), {}).status == OFL_OK);
  CHECK(refuses(*opened(Role::client), server->ours(), {}, "not one descriptor"));
  CHECK(refuses(*opened(Role::client), server->ours().first(8), {}, "body_bytes"));
  std::array<UniqueFd, 1> wrong{UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))};
  CHECK(refuses(*opened(Role::client), server->ours(), wrong, "no memfd"));
  std::vector<UniqueFd> two = passed(*server);
  two.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(refuses(*opened(Role::client), server->ours(), two, "not one descriptor"));
}
