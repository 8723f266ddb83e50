// What the kernel was told of a connection, and what it waits for: they agree, whoever was told to say it and comes late.
// Whom the kernel does not watch is no connection.

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>

#include <sys/epoll.h>

#include "check.hpp"
#include "sessions.hpp"

using sessions::kSecond;
using sessions::pattern;

extern "C" int __real_epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event);

namespace {

// Holds the next thread that tells the kernel that a connection no longer waits for room, on its way there.
class Held {
 public:
  void want() { wanted_.store(true); }

  void pass(int operation, const epoll_event* event) {
    if (operation != EPOLL_CTL_MOD || (event->events & EPOLLOUT) != 0 || !wanted_.exchange(false)) return;
    std::unique_lock lock(mutex_);
    here_ = true;
    changed_.notify_all();
    CHECK(changed_.wait_for(lock, kPatience, [&] { return !here_; }));
  }

  bool is_here() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return here_; });
  }

  void let_go() {
    const std::scoped_lock lock(mutex_);
    here_ = false;
    changed_.notify_all();
  }

  // Of the descriptors that are added from now on, this many are watched, and the one after them is refused.
  void refuse_after(int watched) { until_refused_.store(watched + 1); }

  bool refuses(int operation) {
    if (operation != EPOLL_CTL_ADD || until_refused_.load() == 0) return false;
    return until_refused_.fetch_sub(1) == 1;
  }

 private:
  static constexpr std::chrono::seconds kPatience{20};

  std::atomic<bool> wanted_{false};
  std::atomic<int> until_refused_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool here_ = false;
};

Held held;

}  // namespace

// The linker puts it between the library and the kernel.
extern "C" int __wrap_epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) {
  if (held.refuses(operation)) {
    errno = ENOSPC;
    return -1;
  }
  held.pass(operation, event);
  return __real_epoll_ctl(epoll, operation, descriptor, event);
}

// The loop has sent all that there was, and a reply that finds no room overtakes it on its way into the kernel.
TEST(a_reply_that_waits_for_room_is_sent_though_what_was_known_before_it_arrives_later) {
  ofl_server_options options = sessions::Server::defaults();
  options.handshake_ns = 600 * kSecond;
  const sessions::Server server(OFL_TCP, options);
  ofl_client_options patient = server.offer();
  patient.heartbeat_ns = 60 * kSecond;  // at half of it the loop looks after everybody, and would mend what is wrong
  patient.loss_ns = 600 * kSecond;
  const sessions::Client client(patient);
  const std::uint64_t first = client.submit("one");
  const std::uint64_t second = client.submit("two");
  const sessions::Body one = server.take();
  const sessions::Body two = server.take();
  const std::string large = pattern(sessions::kFrameBytesMax, 1);  // more than the buffers of a socket hold

  CHECK(server.reply(one, large) == OFL_OK);
  held.want();
  std::string reply;
  CHECK(client.wait(first, reply) == OFL_OK && reply == large);
  CHECK(held.is_here());
  CHECK(server.reply(two, large) == OFL_OK);
  held.let_go();
  CHECK(client.wait(second, reply) == OFL_OK && reply == large);
}

namespace {

void judge_served(const sessions::Server& server) {
  const sessions::Client client(server.offer());
  const std::uint64_t asked = client.submit("still here");
  CHECK(server.reply(server.take(), "yes") == OFL_OK);
  std::string reply;
  CHECK(client.wait(asked, reply) == OFL_OK && reply == "yes");
}

}  // namespace

TEST(a_client_whose_socket_the_kernel_does_not_watch_is_let_go_at_once) {
  const sessions::Server server(OFL_TCP);
  held.refuse_after(0);
  ofl_client* refused = nullptr;
  CHECK(sessions::Server::connect(&refused, server.offer()) == OFL_LOST);
  CHECK(refused == nullptr);
  CHECK(server.counter("evicted") == 1);
  judge_served(server);
}

// The client may count as connected by then, and sees the end.
TEST(a_client_whose_ring_the_kernel_does_not_watch_is_let_go_at_once) {
  const sessions::Server server(OFL_SHM);
  held.refuse_after(1);
  ofl_client* refused = nullptr;
  if (sessions::Server::connect(&refused, server.offer()) == OFL_OK) {
    CHECK(sessions::Server::eventually([&] { return ofl_client_alive(refused) == 0; }));
    ofl_client_close(refused);
    ofl_client_free(refused);
  }
  CHECK(server.counter("evicted") == 1);
  judge_served(server);
}
