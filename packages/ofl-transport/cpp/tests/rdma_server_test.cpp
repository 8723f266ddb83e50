// A server over RDMA without its clients: what it registers memory with.

#include <array>

#include <fcntl.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "check.hpp"
#include "rdma_device.hpp"
#include "rdma_pair.hpp"
#include "server.hpp"

using namespace ofl;
using namespace rdma_pair;

namespace {

ServerOptions options() {
  return {.service = "echo",
          .key_file = {},
          .allowed = {},
          .version_min = 1,
          .version_max = 1,
          .frame_bytes_max = 1U << 16,
          .connections_max = 4,
          .pending_max = 4,
          .calls_max = 8,
          .allow_any = false,
          .handshake = kSecond,
          .frame = kSecond,
          .queue_bytes_max = 1U << 20,
          .spin = 0};
}

// The device says that it is dead, as a driver does before it comes back anew.
void let_die(const RdmaDevice& device) {
  int ends[2] = {-1, -1};
  CHECK(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  ib_uverbs_async_event_desc event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  CHECK(::write(ends[1], &event, sizeof event) == static_cast<ssize_t>(sizeof event));
  CHECK(::dup2(ends[0], device.context()->async_fd) >= 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace

TEST(memory_is_registered_with_the_device_that_took_a_dead_ones_place) {
  std::vector<Address> addresses;
  CHECK(resolve(test_address(), 0, now_ns() + kPatience, addresses));
  RdmaPort before;
  CHECK(find_rdma_port(addresses.front(), before));
  std::unique_ptr<Server> server;
  CHECK(Server::create(options(), server));
  std::uint16_t port = 0;
  CHECK(server->listen(wire::Transport::rdma, test_address(), 0, port));
  let_die(*before.device);
  std::shared_ptr<Memory> memory;
  CHECK(Memory::create(nullptr, 4096, false, memory));
  CHECK(server->register_memory(*memory));
  RdmaPort after;
  CHECK(find_rdma_port(addresses.front(), after));
  CHECK(after.device != before.device);
  CHECK(memory->registration(*after.device) != nullptr);
  CHECK(memory->registration(*before.device) == nullptr);
}
