// Whole sessions through the C ABI, without an interpreter: leaks and races have nowhere to hide.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "sessions.hpp"

using sessions::Client;
using sessions::Echo;
using sessions::Server;
using sessions::pattern;
using sessions::soon;

namespace {

// A key file of mode 0600 that goes with its scope.
class KeyFile {
 public:
  explicit KeyFile(const std::string& key) {
    const int file = ::mkstemp(path_);
    CHECK(file >= 0 && ::fchmod(file, 0600) == 0);
    CHECK(::write(file, key.data(), key.size()) == static_cast<ssize_t>(key.size()));
    ::close(file);
  }
  ~KeyFile() { ::unlink(path_); }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/ofl-key-XXXXXX";
};

}  // namespace

ON_EACH_WIRE(bodies_of_every_size_class_come_back) {
  const Echo echo(wire);
  const Client client(echo);
  for (const std::size_t size : {0UL, 1UL, 4096UL, 4097UL, 16384UL, 65536UL, 65537UL, 1UL << 22}) {
    const std::string body = pattern(size, 1);
    std::string reply;
    CHECK(client.wait(client.submit(body), reply) == OFL_OK);
    CHECK(reply == body);
  }
}

ON_EACH_WIRE(clients_on_several_threads_are_served_at_once) {
  const Echo echo(wire);
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < 4; ++index) {
    threads.emplace_back([&echo, index] {
      const Client client(echo);
      for (unsigned turn = 0; turn < 300; ++turn) {
        const std::string body = pattern(turn * 37 % 9000, index);
        const std::uint64_t sequence = client.submit(body);
        if (turn % 5 == 0) {
          CHECK(ofl_client_cancel(client.get(), sequence) == OFL_OK);
          continue;
        }
        std::string reply;
        CHECK(client.wait(sequence, reply) == OFL_OK);
        CHECK(reply == body);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

ON_EACH_WIRE(closing_from_another_thread_ends_a_wait) {
  const Echo echo(wire);
  for (int turn = 0; turn < 20; ++turn) {
    const Client client(echo);
    std::string reply;
    CHECK(client.wait(client.submit("x"), reply) == OFL_OK);
    std::atomic<int> status{-1};
    // The echo server is still busy with the body, or has just answered it.
    const std::uint64_t sequence = client.submit(std::string(1U << 22, 'y'));
    std::thread waiter([&] { status = client.wait(sequence, reply); });
    ofl_client_close(client.get());
    waiter.join();
    CHECK(status == OFL_CLOSED || status == OFL_OK);
  }
}

ON_EACH_WIRE(a_server_that_closes_under_load_ends_every_client_in_time) {
  std::vector<ofl_client*> clients(8);
  {
    const Echo echo(wire);
    for (ofl_client*& client : clients) CHECK(Server::connect(&client, echo.offer()) == OFL_OK);
    const std::string body(100'000, 'z');
    const ofl_part part{body.data(), body.size()};
    std::uint64_t sequence = 0;
    for (ofl_client* client : clients) CHECK(ofl_client_submit(client, &part, 1, nullptr, soon(), &sequence) == OFL_OK);
  }
  for (ofl_client* client : clients) {
    CHECK(Server::eventually([&] { return ofl_client_alive(client) == 0; }));
    char text[512] = "";
    ofl_client_reason(client, text, sizeof text);
    CHECK(std::strlen(text) > 0);
    ofl_client_free(client);
  }
}

ON_EACH_WIRE(both_ends_prove_their_key_or_there_is_no_connection) {
  char text[512] = "";
  if (ofl_feature("hmac-sha256", text, sizeof text) != OFL_OK) SKIP(text);
  const KeyFile key("a key of more than thirty-two bytes, for a test\n");
  const KeyFile other("another key of more than thirty-two bytes, for a test\n");
  const Echo locked(wire, key.path());
  const Echo open(wire);
  const Client client(locked, key.path());
  std::string reply;
  CHECK(client.wait(client.submit("proved"), reply) == OFL_OK && reply == "proved");
  ofl_client* refused = nullptr;
  std::string said;
  CHECK(Server::connect(&refused, locked.offer(other.path()), &said) == OFL_REFUSED && refused == nullptr && !said.empty());
  CHECK(Server::connect(&refused, locked.offer(), &said) == OFL_REFUSED && refused == nullptr && !said.empty());
  CHECK(Server::connect(&refused, open.offer(key.path()), &said) == OFL_REFUSED && refused == nullptr && !said.empty());
  CHECK(Server::eventually([&] { return locked.counter("auth_failures") == 2; }));
  CHECK(locked.counter("accepted") == 1 && open.counter("accepted") == 0);
}

// The sums that they are part of must not begin again at 0, or before the beginning.
TEST(the_longest_spans_and_the_largest_queue_are_as_good_as_none) {
  ofl_server_options options = Server::defaults();
  options.handshake_ns = options.frame_ns = INT64_MAX;
  options.queue_bytes_max = UINT64_MAX;
  const Server server(OFL_TCP, options);
  ofl_client_options offer = server.offer();
  offer.spin_ns = INT64_MAX;
  const Client client(offer);
  const std::string large = pattern(sessions::kFrameBytesMax, 1);
  std::vector<std::uint64_t> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(client.submit("x"));
  for (int i = 0; i < 3; ++i) CHECK(server.reply(server.take(), large) == OFL_OK);  // unread, and more than one frame
  std::string reply;
  for (const std::uint64_t sequence : sequences) CHECK(client.wait(sequence, reply) == OFL_OK && reply == large);
}
