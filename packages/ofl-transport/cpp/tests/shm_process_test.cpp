// Two processes and their deaths: echo, killed, stopped, forked, and what is left behind.

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <sys/wait.h>
#include <unistd.h>

#include "shm_pair.hpp"

using namespace ofl;
using namespace shm_pair;

namespace {

// Under a sanitizer a fork copies its shadow of all memory, which takes long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDeaths = 100;
#else
constexpr int kDeaths = 1000;
#endif

constexpr std::size_t kSizes[] = {0, 1, 40, 64, 1000, 4096, 32768, 75'000, 1U << 20, 13'000'000};

// Sends every frame back, until the peer is gone.
int echo(ShmChannel& channel) {
  Kept kept;
  for (std::uint64_t frames = 1;; ++frames) {
    if (!receive_until(channel, kept, frames)) return kept.spoiled == 0 ? 0 : 1;
    Frame frame(kept.sequence, kept.body.size(), 3);
    if (!send_all(channel, frame.out)) return 2;
  }
}

// A process of its own with the server's end.
class Peer {
 public:
  template <typename Run>
  Peer(Ends& ends, bool looks, Run run) {
    process_ = ::fork();
    if (process_ == 0) {
      ends.client_socket.reset();
      const auto channel = ends.server(looks);
      ::_exit(run(*channel));
    }
    ends.server_socket.reset();
    ends.server_region = ShmRegion();
  }
  ~Peer() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      end();
    }
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void signal(int number) const { CHECK(::kill(process_, number) == 0); }
  void await_stop() const {
    int status = 0;
    CHECK(::waitpid(process_, &status, WUNTRACED) == process_ && WIFSTOPPED(status));
  }
  // Its exit status, or minus the signal that ended it.
  int end() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t process_ = -1;
};

bool sees_the_end(ShmChannel& channel) {
  pollfd entry{channel.hangup_descriptor(), POLLRDHUP, 0};
  CHECK(::poll(&entry, 1, static_cast<int>(kPatience / kMillisecond)) == 1);
  Kept kept;
  return readable(channel.descriptor()) && channel.receive(kept, kBudget) == Progress::closed;
}

// Waits until the peer shows by a frame that it is where the test wants it.
bool in_place(ShmChannel& channel) {
  Kept kept;
  return receive_until(channel, kept, 1);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::size_t mapped_regions() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:ofl") != std::string::npos) ++count;
  return count;
}

}  // namespace

TEST(two_processes_echo_bodies_of_many_sizes) {
  for (const bool looks : {true, false}) {
    Ends ends(kRingBytesMax);
    Peer peer(ends, looks, echo);
    const auto client = ends.client(looks);
    Kept kept;
    std::uint64_t sequence = 0;
    for (int round = 0; round < 5; ++round) {
      for (const std::size_t bytes : kSizes) {
        Frame frame(++sequence, bytes);
        CHECK(send_all(*client, frame.out));
        CHECK(receive_until(*client, kept, sequence));
        CHECK(kept.sequence == sequence && kept.body.size() == bytes);
      }
    }
    CHECK(kept.spoiled == 0);
    client->shut_down();
    CHECK(peer.end() == 0);
  }
}

TEST(a_peer_that_is_killed_while_we_sleep_wakes_us) {
  Ends ends;
  Peer peer(ends, false, [](ShmChannel& channel) {
    Frame frame(1, 10);
    channel.send(frame.out);
    for (;;) ::pause();
    return 0;
  });
  const auto client = ends.client(false);
  CHECK(in_place(*client));
  CHECK(client->arm());
  CHECK(!readable(client->descriptor()));
  peer.signal(SIGKILL);
  CHECK(is_woken(*client, POLLIN));
  CHECK(sees_the_end(*client));
  CHECK(peer.end() == -SIGKILL);
}

TEST(a_peer_that_is_killed_in_the_middle_of_its_frame_is_an_end) {
  Ends ends;
  Peer peer(ends, false, [](ShmChannel& channel) {
    Frame whole(1, 10);
    channel.send(whole.out);
    Frame large(2, 4 * kRing);
    channel.send(large.out);
    for (;;) ::pause();
    return 0;
  });
  const auto client = ends.client(false);
  CHECK(in_place(*client));
  Kept kept;
  while (!client->mid_frame()) client->receive(kept, kBudget);
  peer.signal(SIGKILL);
  CHECK(sees_the_end(*client));
  CHECK(client->mid_frame());
}

TEST(a_peer_that_is_killed_while_our_send_is_blocked_wakes_it) {
  Ends ends;
  Peer peer(ends, false, [](ShmChannel& channel) {
    Frame frame(1, 10);
    channel.send(frame.out);
    for (;;) ::pause();
    return 0;
  });
  const auto client = ends.client(false);
  CHECK(in_place(*client));
  Frame large(1, 4 * kRing);
  CHECK(client->send(large.out) == Progress::blocked);
  CHECK(client->arm());
  CHECK(!readable(client->descriptor()));
  peer.signal(SIGKILL);
  CHECK(is_woken(*client, client->room_events()));
  CHECK(sees_the_end(*client));
  CHECK(client->send(large.out) != Progress::done);
}

TEST(what_a_killed_peer_had_sent_arrives) {
  Ends ends;
  Peer peer(ends, false, [](ShmChannel& channel) {
    for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
      Frame frame(sequence, 1000);
      channel.send(frame.out);
    }
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(peer.end() == -SIGKILL);
  const auto client = ends.client(false);
  Kept kept;
  CHECK(client->receive(kept, kBudget) == Progress::closed);
  CHECK(kept.frames == 20 && kept.spoiled == 0);
}

TEST(a_peer_that_is_stopped_and_goes_on_loses_nothing) {
  Ends ends;
  Peer peer(ends, true, echo);
  const auto client = ends.client(true);
  Kept kept;
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
    peer.signal(SIGSTOP);
    peer.await_stop();
    Frame frame(sequence, 20'000);
    CHECK(client->send(frame.out) == Progress::done);
    CHECK(client->receive(kept, kBudget) == Progress::blocked);  // alive, and silent
    peer.signal(SIGCONT);
    CHECK(receive_until(*client, kept, sequence));
  }
  CHECK(kept.frames == 20 && kept.spoiled == 0);
  client->shut_down();
  CHECK(peer.end() == 0);
}

TEST(a_forked_child_that_drops_its_copy_leaves_the_connection_whole) {
  Ends ends;
  Peer peer(ends, false, echo);
  auto client = ends.client(false);
  const pid_t child = ::fork();
  if (child == 0) {
    client.reset();
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  Kept kept;
  Frame frame(1, 5000);
  CHECK(send_all(*client, frame.out));
  CHECK(receive_until(*client, kept, 1));
  CHECK(kept.spoiled == 0);
  client->shut_down();
  CHECK(peer.end() == 0);
}

TEST(many_deaths_leave_no_descriptor_and_no_mapping) {
  const std::size_t descriptors = open_descriptors();
  for (int round = 0; round < kDeaths; ++round) {
    Ends ends;
    Peer peer(ends, false, [](ShmChannel& channel) {
      Frame large(1, 4 * kRing);
      channel.send(large.out);
      ::raise(SIGKILL);
      return 0;
    });
    const auto client = ends.client(false);
    CHECK(sees_the_end(*client));
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(mapped_regions() == 0);
}
